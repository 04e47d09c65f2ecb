"""How the page looks: its colours by name, light and dark, and its style sheet.

Colours that stand beside each other differ in lightness as well as in hue, so that they are told apart on grey paper
and by those who do not see all hues. On paper the page is always light.
"""

from __future__ import annotations

BANDS = 9
"""Shades of the map of attainments, from the lowest share to the highest."""

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "muted": "#57606a",
    "axis": "#8c959f",
    "grid": "#e4e8ec",
    "panel": "#f5f7f9",
    "p50": "#3577b5",
    "p90": "#1b4f86",
    "p99": "#08213f",
    "first": "#2465a8",
    "first-area": "#d6e5f4",
    "second": "#bd5208",
    "third": "#3f7d4f",
    "good": "#1a7f37",
    "bad": "#b42318",
    "halo": "#ffffff",
    **dict(
        zip(
            (f"band{i}" for i in range(BANDS)),
            ("#f7fafd", "#e3eef8", "#cfe1f2", "#b5d1ea", "#93bddf", "#6ba3d0", "#4787be", "#2a6aa6", "#164c85"),
            strict=True,
        )
    ),
}

DARK = {
    "paper": "#12161b",
    "ink": "#e8ecf0",
    "muted": "#a3adb8",
    "axis": "#6b7680",
    "grid": "#2a3138",
    "panel": "#1b2127",
    "p50": "#5794d1",
    "p90": "#86b8ea",
    "p99": "#dcecfb",
    "first": "#6aa9e9",
    "first-area": "#1f3550",
    "second": "#f0955a",
    "third": "#8fd0a0",
    "good": "#57c878",
    "bad": "#ff8a80",
    "halo": "#12161b",
    **dict(
        zip(
            (f"band{i}" for i in range(BANDS)),
            ("#161c23", "#1a2836", "#1e3449", "#23425f", "#295378", "#336996", "#4483b5", "#66a3d3", "#9ccbf0"),
            strict=True,
        )
    ),
}


def sheet() -> str:
    """The page's style sheet."""
    stacks = "".join(
        f"@media screen and (max-width:{width}px){{{STACKED.replace('SELECTOR', selector)}}}\n"
        for selector, width in ((".stacked", 719), (".broad", 999))
    )
    return _variables(LIGHT, DARK) + SHEET + stacks + PRINT


def _variables(light: dict[str, str], dark: dict[str, str]) -> str:
    day, night = ("".join(f"--{name}:{value};" for name, value in one.items()) for one in (light, dark))
    return (
        f":root{{color-scheme:light;{day}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{night}}}}}\n"
    )


SHEET = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:992px;padding:16px;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;overflow-wrap:break-word}
h1,h2,h3,p,caption,summary,.tile{overflow-wrap:anywhere}
h1{font-size:28px;line-height:1.2;margin:8px 0 4px}
h2{font-size:21px;line-height:1.25;margin:40px 0 8px;padding-top:12px;border-top:1px solid var(--grid)}
h3{font-size:16px;line-height:1.3;margin:0}
p{margin:6px 0;max-width:72ch}
a{color:var(--first)}
.muted,figcaption p,.note{color:var(--muted)}
.note,figcaption p{font-size:14px}
nav{font-size:14px;margin:12px 0}
nav a{display:inline-block;margin-right:16px;padding:2px 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:8px;margin:16px 0}
.tile{background:var(--panel);border:1px solid var(--grid);border-radius:6px;padding:10px 12px;margin:0}
.tile dt{font-size:13px;color:var(--muted);line-height:1.3}
.tile dd{margin:0;font-size:13px;line-height:1.4;color:var(--muted)}
.tile dd.figure{font-size:24px;line-height:1.25;color:var(--ink);font-variant-numeric:tabular-nums}
.good{color:var(--good)}
.bad{color:var(--bad)}
.warning{border-left:4px solid var(--second);padding:2px 0 2px 12px;margin:10px 0}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;margin:10px 0 16px;max-width:100%}
caption{text-align:left;font-weight:600;padding:2px 0 4px;color:var(--ink)}
th,td{text-align:right;padding:4px 0 4px 20px;vertical-align:top;border-bottom:1px solid var(--grid)}
th{font-weight:600}
thead th{color:var(--muted);vertical-align:bottom;font-weight:400}
tbody th,th.words,td.words{text-align:left;overflow-wrap:anywhere}
td:not(.words){white-space:nowrap}
th:first-child,td:first-child{padding-left:0}
tbody th{font-weight:400}
.stacked tbody th{min-width:9em}
figure{margin:20px 0;padding:0}
svg{display:block;width:100%;height:auto;overflow:visible;margin:4px 0}
svg text{font-size:12px;fill:var(--ink)}
svg .halo text{paint-order:stroke;stroke:var(--halo);stroke-width:4px;stroke-linejoin:round}
.narrow{display:none;max-width:520px}
.pair{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,380px),1fr));gap:8px 32px}
.pair figure{margin:12px 0}
.pair svg{max-width:560px}
.map{max-width:720px}
details{margin:4px 0 8px}
summary{font-size:14px;color:var(--muted);cursor:pointer}
footer{margin-top:40px;padding-top:12px;border-top:1px solid var(--grid);font-size:14px;color:var(--muted)}
@media screen and (max-width:719px){
.wide{display:none}
.narrow{display:block}
h1{font-size:24px}
.tiles{grid-template-columns:repeat(auto-fit,minmax(140px,1fr))}
}
"""

PRINT = """
@page{size:A4;margin:14mm}
@media print{
body{max-width:none;padding:0;font-size:10pt}
nav,details{display:none}
h1{font-size:18pt}
h2{font-size:13pt;margin:18pt 0 4pt}
h2,h3,caption,figcaption{break-after:avoid}
figure,tr,.tiles,.warning,.short{break-inside:avoid}
thead{display:table-header-group}
table,.note,figcaption p{font-size:8.5pt}
th,td{padding:2pt 0 2pt 9pt}
th:first-child,td:first-child{padding-left:0}
.broad{font-size:8pt}
.broad th:not(:first-child),.broad td{padding-left:6pt}
.broad tbody th{min-width:7em}
a{color:inherit;text-decoration:none}
.tiles{grid-template-columns:repeat(4,1fr)}
.tile dd.figure{font-size:15pt}
.pair{grid-template-columns:1fr 1fr;gap:4pt 18pt}
}
"""

STACKED = """SELECTOR,SELECTOR caption,SELECTOR tbody{display:block;width:100%}
SELECTOR thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
SELECTOR tr{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));gap:4px 8px;align-items:end;padding:8px 0;
border-bottom:1px solid var(--grid)}
SELECTOR tbody th{grid-column:1/-1;padding:0;border:0;font-weight:600}
SELECTOR td{padding:0;border:0;text-align:left;overflow-wrap:anywhere}
SELECTOR td.words{grid-column:1/-1}
SELECTOR td:not(.words){white-space:normal}
SELECTOR td[data-head]::before{content:attr(data-head);display:block;font-size:12px;line-height:1.2;
color:var(--muted)}"""
"""A table as blocks, one a row, in which each figure has its column's head above it."""
