"""`make release`: build the distributions, check their content, try the quickstart."""
