"""The parts of a page: one file with its style in it, that loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from penstock.drawing.formatting import plain

__all__ = ["LOGO", "document", "nothing", "section", "table", "tile"]

# A pipe from the water above to the wheel below, and the gate on it.
LOGO = (
    '<svg viewBox="0 0 32 32" fill="none" stroke="currentColor" stroke-width="2.6" stroke-linecap="round" '
    'aria-hidden="true"><path d="M3 8h7l9.6 9.6M3 15h4l9.4 9.4M19 4.5v8M15.5 4.5h7"/>'
    '<circle cx="23" cy="23.5" r="5.4"/></svg>'
)

# Whatever a job's text may hold: nothing on the page can fetch or run anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, top: str, body: str, foot: str) -> str:
    """A whole page."""
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="generator" content="penstock"><title>{plain(title)}</title>\n<style>\n{style}</style></head>\n'
        f'<body><header class="top"><div class="brand">{LOGO}Penstock</div>{top}</header>\n'
        f"<main>{body}</main>\n<footer>{foot}</footer></body></html>\n"
    )


def section(name: str, title: str, finding: str, *parts: str) -> str:
    """A card with a heading and what is to be seen in it, said in a sentence."""
    return f'<section id="{name}"><header><h2>{plain(title)}</h2><p>{finding}</p></header>{"".join(parts)}</section>\n'


def tile(name: str, title: str, figure: str, note: str, kind: str = "") -> str:
    """A headline figure."""
    return (
        f'<dl class="tile {kind}" data-figure="{name}"><dt>{plain(title)}</dt>'
        f"<dd>{plain(figure)}</dd><small>{plain(note)}</small></dl>"
    )


def table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], kinds: Sequence[str], classes: Sequence[str] = ()
) -> str:
    """Rows of ready-made cells; a kind for each column: n number, name words, else as the style sheet has it."""
    head = "".join(f'<th class="{kind}">{title}</th>' for title, kind in zip(titles, kinds, strict=True))
    body = "".join(
        (f'<tr class="{classes[number]}">' if classes and classes[number] else "<tr>")
        + "".join(f'<td class="{kind}">{cell}</td>' for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def nothing(said: str) -> str:
    """What stands where there is nothing to show."""
    return f'<p class="none">{said}</p>'
