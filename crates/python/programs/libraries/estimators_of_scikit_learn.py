"""Estimators of scikit-learn on tensors, through the array API."""

import os

os.environ["SCIPY_ARRAY_API"] = "1"

import numpy
import torch
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import (
    Binarizer, MaxAbsScaler, MinMaxScaler, Normalizer, PolynomialFeatures, StandardScaler,
)
from shown import show

rng = numpy.random.default_rng(0)
data = rng.normal(size=(60, 5))
weights = rng.normal(size=5)
x = torch.asarray(data)
classes, numbers = torch.asarray((data @ weights > 0).astype(numpy.int64)), torch.asarray(data @ weights)

with config_context(array_api_dispatch=True):
    for solver in ("full", "covariance_eigh"):
        model = PCA(3, svd_solver=solver).fit(x)
        show(f"PCA, {solver}", model.explained_variance_, model.mean_, abs(model.transform(x)))
    for model in (Ridge(solver="svd"), RidgeCV()):
        model.fit(x, numbers)
        show(type(model).__name__, model.coef_, model.predict(x))
    for model in (RidgeClassifier(solver="svd"), LogisticRegression(solver="lbfgs")):
        model.fit(x, classes)
        show(type(model).__name__, model.coef_, model.predict(x))
    for model in (LinearDiscriminantAnalysis(), GaussianNB()):
        model.fit(x, classes)
        show(type(model).__name__, model.predict(x), model.predict_proba(x))
    show("GaussianMixture", GaussianMixture(2, init_params="random", random_state=0).fit(x).predict(x))
    scalers = StandardScaler(), MinMaxScaler(), MaxAbsScaler(), Normalizer()
    for model in (*scalers, Binarizer(threshold=0.2), PolynomialFeatures(2)):
        show(type(model).__name__, model.fit(x).transform(x))
