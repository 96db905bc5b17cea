"""Conditional samplers: replacements for some columns given others, for relative and conditional importance.

A sampler is fitted, ``fit(X, target, given)``, and hands over its draws for the evaluated rows, ``.on(X)``, in one of
three forms: `Residuals`, `ValueDraws` or `DonorDraws`. Which one to take:

=============  ==================================  ====================================================================
name           draws                               right if
=============  ==================================  ====================================================================
"auto"         by the kind of the feature          the default: "gaussian" for numbers, "leaves" for categories; where
                                                   that is found to be wrong, "splines", then "leaves"
"gaussian"     linear mean + a donor's residual    the target is linear in the given columns, with the same errors
"splines"      curved mean + a donor's residual    it is a sum of curves and products of them, with the same errors
"residual"     smooth mean + a donor's residual    it is a smooth function of them, with the same errors everywhere
"knn"          a near row's value                  any conditional distribution, few given columns
"leaves"       the value of a row in the stratum   categories; any conditional distribution that a tree can separate
"knockoffs"    Gaussian knockoffs                  to compare with them; not the conditional distribution
=============  ==================================  ====================================================================
"""

from reliance.samplers.by_kind import ByKind
from reliance.samplers.draws import DonorDraws, Draws, FittedSampler, Normal, Residuals, Sampler, ValueDraws
from reliance.samplers.knockoffs import Knockoffs, knockoff_copies, knockoff_filter, knockoff_scales
from reliance.samplers.neighbours import KNN, Leaves
from reliance.samplers.regressors import OLS, KernelRidge
from reliance.samplers.residual import Gaussian, Residual
from reliance.samplers.scrambling import Scrambler
from reliance.samplers.splines import Splines

__all__ = [
    "KNN",
    "OLS",
    "ByKind",
    "DonorDraws",
    "Draws",
    "FittedSampler",
    "Gaussian",
    "KernelRidge",
    "Knockoffs",
    "Leaves",
    "Normal",
    "Residual",
    "Residuals",
    "Sampler",
    "Scrambler",
    "Splines",
    "ValueDraws",
    "knockoff_copies",
    "knockoff_filter",
    "knockoff_scales",
]
