"""Hostile calls as a table: every public function with odd input, and what must come of it.

`record` says what a case is and how it is checked; `loops` has the literal answers; `functions` how each function is
called on good input. The other modules are the odd inputs, one family each; each ends in a generator ``cases()``.
"""
