"""From rows to integers. No value of a row may make this fail, or change the integers of other rows."""
