"""report.html and report.md, the sample browser inside the page, and the local page of `tailgauge view`.

Nothing is imported here, so that a verb that needs one module loads that one alone.
"""
