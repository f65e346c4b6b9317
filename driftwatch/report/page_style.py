"""The style of the report's page: dark on white, readable at 360 px, printable."""

from __future__ import annotations

# #595959 on white is 7.0:1, #004b76 is 9.0:1
STYLE = """
:root{color-scheme:light}
*{box-sizing:border-box}
body{margin:0;background:#fff;color:#1a1a1a;font:16px/1.45 system-ui,sans-serif}
main{max-width:72rem;margin:0 auto;padding:1rem}
h1{font-size:1.35rem;line-height:1.25;margin:.25rem 0}
h2{font-size:1.1rem;margin:2rem 0 .5rem;border-bottom:1px solid #8a8a8a;padding-bottom:.2rem}
.fleet,.note{color:#595959;margin:.25rem 0}
.note{font-size:.875rem;max-width:60rem}
dl{display:grid;grid-template-columns:6rem 1fr;gap:.3rem .75rem;margin:.75rem 0}
dt{font-weight:700;grid-column:1}
dd{margin:0;grid-column:2;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;margin:.5rem 0;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.3rem 1rem .3rem 0;overflow-wrap:break-word}
td:first-child{overflow-wrap:anywhere;min-width:6rem}
.t{overflow-x:auto}
th{border-bottom:2px solid #1a1a1a;font-weight:600;overflow-wrap:normal}
td{border-bottom:1px solid #d0d0d0}
.n{text-align:right;font-variant-numeric:tabular-nums}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.5rem}
figure{margin:.75rem 0;break-inside:avoid}
figcaption{font-weight:600;font-size:.95rem;margin-bottom:.25rem;overflow-wrap:anywhere}
svg{display:block;width:100%;max-width:32rem;height:auto}
svg *{stroke-linejoin:round;stroke-linecap:butt}
summary{color:#004b76;font-size:.875rem;cursor:pointer}
@media (max-width:40rem){
dl{grid-template-columns:1fr;gap:.1rem}
dt,dd{grid-column:1}
dd{margin-bottom:.4rem}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
tr{display:block;border-bottom:2px solid #8a8a8a;padding:.4rem 0}
td,td.n{display:grid;grid-template-columns:8.5rem 1fr;gap:.5rem;text-align:left}
td,td.n{border:0;padding:.1rem 0}
td::before{content:attr(data-label);color:#595959}
}
@media print{
body{font-size:10pt}
main{max-width:none;padding:0}
summary{display:none}
details::details-content{content-visibility:visible;block-size:auto}
a{color:inherit}
}
""".strip()
