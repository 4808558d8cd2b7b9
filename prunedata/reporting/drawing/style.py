"""The look of a page: on paper and screens, wide and narrow, by day and in the dark."""

__all__ = ["CARD", "PAGE"]

FIGURES = """
figure.plot{margin:0 0 .5rem;padding:0 2px 0 46px}figure.wide{padding-left:0}
svg{display:block;overflow:visible}svg text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg .side,svg .end{text-anchor:end}svg .middle{text-anchor:middle}svg .start{text-anchor:start}
svg .figure{fill:var(--ink);font-weight:600}
svg .halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.grid{stroke:var(--rule)}.base{stroke:var(--soft)}
.curve,.hint{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round;stroke-linecap:round}
.curve{stroke:var(--ink);stroke-width:2px}.hint{stroke:var(--accent);stroke-width:2px;stroke-dasharray:5 4}
.shade{fill:var(--pale)}.bar{fill:var(--accent)}.track{fill:var(--rule)}.dark{fill:var(--ink)}
.whole.done{fill:var(--soft)}.pruned.done{fill:var(--accent)}
.whole.ahead{fill:var(--soft);opacity:.35}.pruned.ahead{fill:var(--accent);opacity:.35}
.key{display:inline-block;width:1.5em;height:.7em;margin:0 .5em 0 0;vertical-align:baseline}
.key.shade{background:var(--pale)}.key.bar{background:var(--accent);width:.55em;height:1em;vertical-align:-.1em}
.key.low{background:var(--soft);width:.55em;height:.35em}
.key.curve{border-top:2px solid var(--ink);height:.25em}.key.hint{border-top:2px dashed var(--accent);height:.25em}
.legend{color:var(--soft);font-size:.87rem;margin:.1rem 0 .9rem}.legend>span{display:inline-block;margin-right:1.3em}
"""

PAGE = """
:root{color-scheme:light dark;--ink:#1b2130;--soft:#566074;--rule:#e2e5ec;--paper:#fff;--back:#f5f6f9;
--accent:#3f51b5;--pale:#dde1f6;--warm:#8a4b08;--warmback:#fdf3e3}
@media(prefers-color-scheme:dark){:root{--ink:#e7eaf2;--soft:#a3acbf;--rule:#303749;--paper:#171b26;--back:#0f121a;
--accent:#94a1f2;--pale:#262e54;--warm:#f2bd76;--warmback:#2b2417}}
*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--back);color:var(--ink);overflow-wrap:anywhere;
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
header,main,footer{max-width:1060px;margin:0 auto;padding:0 16px}
header{padding-top:2.2rem}h1{font-size:1.85rem;line-height:1.2;margin:0 0 .3rem;letter-spacing:-.015em}
.state{color:var(--soft);margin:0 0 1.3rem}
nav ol{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;padding:0;margin:0 0 1.2rem;font-size:.92rem}
a{color:var(--accent)}a:focus-visible,summary:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:16px;top:8px;background:var(--paper);padding:.4rem .8rem}
section{background:var(--paper);border:1px solid var(--rule);border-radius:10px;padding:1.25rem 1.4rem;margin:0 0 1rem}
h2{font-size:1.2rem;margin:0 0 .25rem;letter-spacing:-.01em}h3{font-size:1rem;margin:1rem 0 .3rem}
section>h3:first-child,.panel>h3:first-child{margin-top:.2rem}p{margin:.25rem 0 .8rem;max-width:70ch}
ul{margin:.3rem 0;padding-left:1.2rem}li{max-width:75ch}
.note{color:var(--soft);font-size:.92rem}
.panels,.split{display:grid;grid-template-columns:minmax(0,1fr);gap:.4rem 2rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.7rem;margin:.6rem 0 1rem;padding:0}
.tiles div{border-left:3px solid var(--accent);padding:.05rem 0 .05rem .7rem}
.tiles dt{color:var(--soft);font-size:.87rem}
.tiles dd{margin:0;font-size:1.45rem;font-weight:650;line-height:1.25;font-variant-numeric:tabular-nums}
.tiles dd small{display:block;font-size:.8rem;font-weight:400;color:var(--soft)}
.facts{display:grid;grid-template-columns:minmax(6.5rem,max-content) minmax(0,1fr);gap:.15rem 1rem;margin:.4rem 0}
.facts dt{color:var(--soft)}.facts dd{margin:0}
.table{overflow-x:auto;margin:.5rem 0;overflow-wrap:break-word}td bdi{overflow-wrap:anywhere}
table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);font-size:.87rem;padding-bottom:.3rem}
th,td{text-align:right;padding:.28rem .75rem;border-bottom:1px solid var(--rule);vertical-align:top}
th{font-weight:600}tbody th{font-weight:400}th.text,td.text{text-align:left;max-width:26rem}
th:first-child,td:first-child{padding-left:0}thead th{color:var(--soft);white-space:nowrap}
details{margin:.5rem 0 0}summary{cursor:pointer;color:var(--accent);width:fit-content}
.advice{border-left:4px solid var(--warm);background:var(--warmback);padding:.75rem 1rem;border-radius:6px;
margin:.6rem 0}
.advice strong{color:var(--warm)}.advice p{margin:0;max-width:none}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.2rem,1fr));gap:.8rem;list-style:none;padding:0;
margin:.7rem 0}.cards.texts{grid-template-columns:repeat(auto-fill,minmax(16rem,1fr))}
.cards li{border:1px solid var(--rule);border-radius:8px;padding:.6rem;font-size:.87rem;min-width:0;overflow:hidden}
.cards img{display:block;width:96px;height:96px;object-fit:contain;image-rendering:pixelated;margin:0 auto .4rem;
background:var(--back)}.cards q{display:block;quotes:none;max-height:9em;overflow:hidden;margin-bottom:.3rem}
.cards .note{font-size:.8rem}
pre{background:var(--back);border-radius:6px;padding:.8rem;overflow-x:auto;font-size:.8rem;line-height:1.45}
footer{color:var(--soft);font-size:.87rem;padding-bottom:2rem}
@media(min-width:900px){body:not(.two) .split,.two .panels{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}}
@media(max-width:480px){section{padding:1rem .9rem;border-radius:8px}h1{font-size:1.5rem}header{padding-top:1.3rem}
th,td{padding:.28rem .45rem}}
@media print{:root{--ink:#000;--soft:#444;--rule:#bbb;--paper:#fff;--back:#fff;--accent:#303f9f;--pale:#dde1f6;
--warm:#6b3a05;--warmback:#fff}body{font-size:10.5pt}nav,.skip{display:none}
section{border:0;padding:.3rem 0;break-inside:avoid}section.long{break-inside:auto}h2,h3{break-after:avoid}
figure,tr,.cards li{break-inside:avoid}
details::details-content{content-visibility:visible;height:auto}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
a{color:inherit;text-decoration:none}.table{overflow:visible}}
""" + FIGURES  # fmt: skip

CARD = (
    """.prunedata{--ink:currentColor;--soft:color-mix(in srgb,currentColor 70%,transparent);
--rule:color-mix(in srgb,currentColor 18%,transparent);--accent:#6271dc;--pale:#6271dc40;--paper:transparent;
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;max-width:760px;
h2{font-size:1.1em;margin:0}p{margin:.15em 0 .8em}"""
    + FIGURES
    + "}"
)
"""Of a run in a notebook. The page around decides what is dark and what light: the colours are mixed from its own."""
