"""An analyst's expressions over one row, in a process of their own."""
