"""The references of the projection methods."""

__all__ = ["DEMPSTER", "DYKSTRA", "KULIS", "QI_SUN", "QI_SUN_WEIGHTED"]

KULIS = "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10"
DEMPSTER = (
    "Dempster (1972), Covariance Selection, Biometrics 28; Dahl, Vandenberghe, Roychowdhury (2008), "
    "Covariance Selection for Nonchordal Graphs via Chordal Embedding, Optim. Methods Softw. 23"
)
DYKSTRA = (
    "Dykstra (1983), An Algorithm for Restricted Least Squares Regression, JASA 78; Higham (2002), Computing "
    "the Nearest Correlation Matrix: A Problem from Finance, IMA J. Numer. Anal. 22"
)
QI_SUN = (
    "Qi, Sun (2006), A Quadratically Convergent Newton Method for Computing the Nearest Correlation Matrix, "
    "SIAM J. Matrix Anal. Appl. 28"
)
QI_SUN_WEIGHTED = (
    "Qi, Sun (2010), An Augmented Lagrangian Dual Approach for the H-Weighted Nearest Correlation Matrix "
    "Problem, IMA J. Numer. Anal. 31; Nesterov, Todd (1997), Self-Scaled Barriers and Interior-Point Methods "
    "for Convex Programming, Math. Oper. Res. 22"
)
