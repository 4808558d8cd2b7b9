"""How the page looks, beside what it has from the report."""

__all__ = ["REVIEW"]

REVIEW = """
main:focus{outline:none}#one{display:grid;grid-template-columns:minmax(0,1fr);gap:.6rem 2rem}
#sample{min-height:14rem;display:grid;align-content:start;justify-items:start;gap:.8rem;max-height:60vh;overflow:auto}
#sample img{width:min(100%,22rem);max-height:52vh;object-fit:contain;image-rendering:pixelated;background:var(--back)}
#sample img[src^="data:image/jpeg"]{image-rendering:auto}
blockquote{margin:0;white-space:pre-wrap;font-size:1.1rem;max-width:70ch}
#sample th{text-align:left;color:var(--soft)}#sample td{text-align:left}
#label{font-size:1.5rem;font-weight:650;line-height:1.2;margin:.1rem 0 .2rem}
.buttons{display:flex;flex-wrap:wrap;gap:.5rem;margin:.7rem 0}
button{font:inherit;color:var(--ink);background:var(--paper);border:1px solid var(--soft);border-radius:8px;
padding:.35rem .8rem;cursor:pointer}button:hover:not(:disabled){border-color:var(--accent)}
button:focus-visible,#find:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
button:disabled{color:var(--soft);border-color:var(--rule);cursor:default}
kbd{font:600 .85em ui-monospace,monospace;border:1px solid var(--rule);border-radius:4px;padding:.05em .4em;
background:var(--back);margin-right:.2em}
progress{width:100%;height:.6rem;accent-color:var(--accent)}
#find{font:inherit;width:min(100%,22rem);padding:.4rem .6rem;border:1px solid var(--soft);border-radius:8px;
color:var(--ink);background:var(--paper)}
#classes{list-style:none;padding:0;margin:.4rem 0;max-width:22rem}
#classes li{padding:.25rem .6rem;border-radius:6px;cursor:pointer}
#classes li[aria-selected=true]{background:var(--pale)}
[hidden]{display:none!important}
#spoken{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media(min-width:900px){#one{grid-template-columns:minmax(0,1.2fr) minmax(0,1fr)}}
"""
