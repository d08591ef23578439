"""What a system's own part of reports is written with: ``part(facts)``, a ``Part``, of the module named by ``System.report``."""

from .._report.facts import Facts
from .._report.markup import Markup, figure, keys, paragraph, section, table
from .._report.write import Part

__all__ = ["Facts", "Markup", "Part", "figure", "keys", "paragraph", "section", "table"]
