"""The report as one HTML file that needs nothing else: `collect` gathers its data, `render` makes the page.

    data = collect(runs)                  # plain JSON: groups, fields to filter by, panels with their blocks
    html = render(data)                   # a page that opens from disk and asks for nothing
    html = render(data, live=True)        # a page that asks for `data.json` beside it every few seconds

A server of a live page answers `data.json` with `json.dumps(collect(runs))`; with an `ETag` it may answer 304
to what hasn't changed. The page draws itself anew and keeps filter, order of tables, choices, sliders and
what is hidden. `collect([])` is the data of a page without runs. A `Reader` (`mnemos.report.reading`) that is
kept between calls of `collect` reads only those runs again that have changed.
"""

from mnemos.report.page.collect import collect, gather
from mnemos.report.page.render import render

__all__ = ["collect", "gather", "render"]
