"""Functions of SciPy on tensors, with ``SCIPY_ARRAY_API=1``."""

import os

os.environ["SCIPY_ARRAY_API"] = "1"

import numpy
import torch
from scipy import cluster, constants, differentiate, integrate, interpolate, ndimage, optimize, signal, special, stats
from scipy.spatial.transform import Rotation
from shown import show

rng = numpy.random.default_rng(0)
x, z, square = (torch.asarray(rng.random(size) + 0.1) for size in ((20,), (6, 3), (4, 4)))
y = torch.flip(x, (0,))

for name in "log_ndtr ndtr ndtri erf erfc i0 i0e i1 i1e gammaln entr expit logit digamma".split():
    show(name, getattr(special, name)(x * 0.5))
for name in "rel_entr xlogy gammainc gammaincc chdtrc".split():
    show(name, getattr(special, name)(x, y))
show("betainc", special.betainc(x, y, x * 0.5))
for name in "logsumexp softmax log_softmax".split():
    show(name, getattr(special, name)(z, axis=0))
for name in "trapezoid cumulative_trapezoid".split():
    show(name, getattr(integrate, name)(x))
bounds = torch.asarray([0.0, 1.0]).double()
show("tanhsinh", integrate.tanhsinh(lambda t: t**2, bounds, bounds + 1).integral)
ALONG = "skew kurtosis moment variation gmean hmean zscore gzscore sem tmean tvar tstd tmin tmax iqr rankdata"
for name in ALONG.split():
    show(name, getattr(stats, name)(x))
show("zmap", stats.zmap(x, y))
show("pmean", stats.pmean(x, 2))
show("kstat", stats.kstat(x, 2))
show("lmoment", stats.lmoment(x))
show("entropy", stats.entropy(x))
show("circmean", stats.circmean(x))
show("boxcox_llf", stats.boxcox_llf(0.3, x))
show("directional_stats", stats.directional_stats(z).mean_direction)
for name, result in (
    ("ttest_1samp", stats.ttest_1samp(x, 0.5)), ("ttest_ind", stats.ttest_ind(x, x**2)),
    ("pearsonr", stats.pearsonr(x, y)), ("chisquare", stats.chisquare(x)), ("jarque_bera", stats.jarque_bera(x)),
    ("power_divergence", stats.power_divergence(x, lambda_=1.5)), ("bartlett", stats.bartlett(x, x**2)),
):
    show(name, result.statistic, result.pvalue)
show("whiten", cluster.vq.whiten(z))
show("vq", *cluster.vq.vq(z, z[:2]))
show("linkage", cluster.hierarchy.linkage(z, "single"))
show("convolve", signal.convolve(x, x[:5], method="direct"))
show("detrend", signal.detrend(x))
show("savgol_filter", signal.savgol_filter(x, 5, 2))
show("lfilter", signal.lfilter(torch.asarray([1.0, 0.5]).double(), torch.asarray([1.0, -0.2]).double(), x))
show("gaussian_filter", ndimage.gaussian_filter(z, 1.0))
show("ndimage.convolve", ndimage.convolve(z, z[:3]))
show("rosen", optimize.rosen(x))
show("derivative", differentiate.derivative(lambda t: t**3, x).df)
places = torch.arange(4.0).double()
grid = interpolate.RegularGridInterpolator((places, places), square)
show("RegularGridInterpolator", grid(torch.asarray([[0.5, 1.5]]).double()))
show("Rotation", Rotation.from_rotvec(torch.asarray([0.1, 0.2, 0.3]).double()).as_matrix())
show("convert_temperature", constants.convert_temperature(x, "C", "K"))
