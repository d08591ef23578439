"""What systems share whose theorems speak of a state near an exact fit, or a minimum, however it was reached: the choice of the
ball, step rules, audit, finish, and ``sf.watch``."""
