"""The report as one HTML file: `collect` makes the page's data, `render` makes the page.

    data = collect(runs)                  # plain JSON: groups, fields to filter by, panels with their blocks
    html = render(data)                   # a page that opens from disk and loads nothing else
    html = render(data, live=True)        # a page that asks for `data.json` beside it every few seconds

A server of a live page answers `data.json` with `json.dumps(collect(runs))`; with an `ETag` it may answer 304
if nothing has changed. The page then draws itself again, and keeps filters, the order of tables, choices,
sliders and hidden groups. `collect([])` is the data of a page without runs. A `Reader`
(`mnemos.report.reading`) that is kept between calls of `collect` reads only the runs again that have changed.
"""

from mnemos.report.page.collect import collect, gather
from mnemos.report.page.render import render

__all__ = ["collect", "gather", "render"]
