"""The Southern Women data, embedded here: which women attended which social events.

A. Davis, B. B. Gardner and M. R. Gardner, *Deep South* (University of Chicago Press, 1941),
recorded from newspaper reports which of 18 women attended which of 14 social events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["southern_women"]

# One character per event, E1 to E14 from left to right; 1 means attended.
_ATTENDANCE = {
    "Evelyn Jefferson": "11111101100000",
    "Laura Mandeville": "11101111000000",
    "Theresa Anderson": "01111111100000",
    "Brenda Rogers": "10111111000000",
    "Charlotte McDowd": "00111010000000",
    "Frances Anderson": "00101101000000",
    "Eleanor Nye": "00001111000000",
    "Pearl Oglethorpe": "00000101100000",
    "Ruth DeSand": "00001011100000",
    "Verne Sanderson": "00000011100100",
    "Myra Liddel": "00000001110100",
    "Katherina Rogers": "00000001110111",
    "Sylvia Avondale": "00000011110111",
    "Nora Fayette": "00000110111111",
    "Helen Lloyd": "00000011011100",
    "Dorothy Murchison": "00000001100000",
    "Olivia Carleton": "00000000101000",
    "Flora Price": "00000000101000",
}


def southern_women() -> pd.DataFrame:
    """The 18 x 14 attendance matrix: rows are women, columns are events, 89 ones, no blanks.

    >>> southern_women().loc["Nora Fayette", "E8"]
    np.float64(0.0)
    """
    import pandas as pd

    rows = [[float(mark) for mark in marks] for marks in _ATTENDANCE.values()]
    women = pd.Index(list(_ATTENDANCE), name="woman")
    events = pd.Index([f"E{number}" for number in range(1, 15)], name="event")
    return pd.DataFrame(rows, index=women, columns=events)
