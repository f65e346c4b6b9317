"""The web: pages that a page's link opens; HTML and JSON of the same view, no script."""
