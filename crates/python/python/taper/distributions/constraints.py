"""Where the parameters and values of distributions may be: ``check`` gives a truth for each event."""

from .._taper import Tensor


class Constraint:
    """A set of values; an event has ``event_dim`` axes."""

    is_discrete, event_dim = False, 0
    _bounds = ()

    def check(self, value):
        raise NotImplementedError

    def __repr__(self):
        bounds = ", ".join(f"{name}={getattr(self, name)}" for name in self._bounds)
        return f"{type(self).__name__.lstrip('_')}({bounds})"


class _Dependent(Constraint):
    """A set that depends on the parameters."""

    def check(self, value):
        raise ValueError("Cannot determine validity of dependent constraint")


class _Real(Constraint):
    def check(self, value):
        return value == value


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


def _one_bound(name, bound, holds, discrete=False):
    def __init__(self, limit):
        setattr(self, bound, limit)

    def check(self, value):
        fits = holds(value, getattr(self, bound))
        return fits & (value % 1 == 0) if discrete else fits

    return type(name, (Constraint,), {
        "__init__": __init__, "check": check, "_bounds": (bound,), "is_discrete": discrete, "__module__": __name__,
    })


def _two_bounds(name, holds, discrete=False):
    def __init__(self, lower_bound, upper_bound):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value):
        fits = holds(value, self.lower_bound, self.upper_bound)
        return fits & (value % 1 == 0) if discrete else fits

    return type(name, (Constraint,), {
        "__init__": __init__, "check": check, "_bounds": ("lower_bound", "upper_bound"), "is_discrete": discrete,
        "__module__": __name__,
    })


greater_than = _one_bound("_GreaterThan", "lower_bound", lambda value, low: value > low)
greater_than_eq = _one_bound("_GreaterThanEq", "lower_bound", lambda value, low: value >= low)
less_than = _one_bound("_LessThan", "upper_bound", lambda value, high: value < high)
_integer_from = _one_bound("_IntegerGreaterThan", "lower_bound", lambda value, low: value >= low, True)
interval = _two_bounds("_Interval", lambda value, low, high: (value >= low) & (value <= high))
half_open_interval = _two_bounds("_HalfOpenInterval", lambda value, low, high: (value >= low) & (value < high))
integer_interval = _two_bounds("_IntegerInterval", lambda value, low, high: (value >= low) & (value <= high), True)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value):
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value):
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Multinomial(Constraint):
    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound

    def check(self, value):
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerCholesky(Constraint):
    event_dim = 2

    def check(self, value):
        return (value.tril() == value).all(-1).all(-1) & (value.diagonal(0, -2, -1) > 0).all(-1)


class _PositiveDefinite(Constraint):
    event_dim = 2

    def check(self, value):
        from ..linalg import eigvalsh

        symmetric = (value - value.mT).abs().amax((-2, -1)) <= 1e-6
        return symmetric & (eigvalsh(value.detach()) > 0).all(-1)


class _IndependentConstraint(Constraint):
    """The last axes of another constraint's truths are one event."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value):
        fits = self.base_constraint.check(value)
        for _ in range(self.reinterpreted_batch_ndims):
            fits = fits.all(-1)
        return fits

    def __repr__(self):
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


def is_dependent(constraint):
    return isinstance(constraint, _Dependent)


independent, multinomial, dependent = _IndependentConstraint, _Multinomial, _Dependent()
real, boolean, simplex, one_hot = _Real(), _Boolean(), _Simplex(), _OneHot()
real_vector = independent(real, 1)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
nonnegative_integer, positive_integer = _integer_from(0), _integer_from(1)
lower_cholesky, positive_definite = _LowerCholesky(), _PositiveDefinite()


def check_all(constraint, value):
    """Whether all of a value is within a constraint."""
    return not isinstance(value, Tensor) or bool(constraint.check(value).all())
