//! The page: one file, which asks for nothing else, for phones and desks, by day and by night.

use super::document::{Block, Cell, Plot, Table, Tone};

/// Rows of a table beyond which it is folded.
const FOLDED_ROWS: usize = 24;

const STYLE: &str = "\
:root{color-scheme:light dark;--page:#f6f5f1;--card:#fff;--ink:#1d1d1b;--soft:#5f5d57;--line:#d9d6cd;--good:#14703a;--bad:#b02a1c;
--ext4:#3f74c4;--xfs:#2a9d9d;--btrfs:#d98a1f;--brindle:#a0308f;--brindle-off:#cf86c4;--brindle-all:#5d1a70;--read:#2f8f5b;--written:#cc4a2f}
@media(prefers-color-scheme:dark){:root{--page:#161614;--card:#20201d;--ink:#ecebe6;--soft:#a6a39a;--line:#3a3934;--good:#6fcf91;--bad:#ff8a7a;
--ext4:#7aa7ee;--xfs:#5cc9c9;--btrfs:#f0b155;--brindle:#e07fd2;--brindle-off:#9c5a93;--brindle-all:#c9a3ff;--read:#6fd39a;--written:#ff8f70}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:1360px;margin:0 auto;padding:20px 16px 64px}
h1{font-size:1.7rem;line-height:1.2;margin:.4em 0}
h2{font-size:1.3rem;margin:2.2em 0 .5em;padding-top:.5em;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:1.6em 0 .4em}
p,ul{max-width:78ch}
p{overflow-wrap:anywhere}
code{font:.9em ui-monospace,monospace}
nav{display:flex;flex-wrap:wrap;gap:6px 14px;margin:12px 0;font-size:.95rem}
a{color:inherit}
.table{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px;margin:10px 0}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:5px 10px;text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600;vertical-align:bottom}
.l{text-align:left}
td.l:first-child,th.l:first-child{position:sticky;left:0;background:var(--card)}
tr+tr td{border-top:1px solid var(--line)}
.good{color:var(--good);font-weight:600}
.bad{color:var(--bad);font-weight:600}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));gap:12px;margin:10px 0}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px}
figure svg{width:100%;height:auto;max-width:460px;display:block}
figcaption{font-size:.85rem;color:var(--soft);margin-bottom:4px}
@media(max-width:640px){td.l:first-child,th.l:first-child{white-space:normal;min-width:8.5em;max-width:42vw}th,td{padding:5px 7px}}
summary{cursor:pointer;padding:4px 0}
";

/// The page of a report.
pub(super) fn to_html(title: &str, blocks: &[Block]) -> String {
    let mut body = String::new();
    let mut plots = false;
    let mut contents = String::new();
    for (number, block) in blocks.iter().enumerate() {
        let is_plot = matches!(block, Block::Plot(_));
        if is_plot != plots {
            body.push_str(if is_plot { "<div class=\"plots\">" } else { "</div>\n" });
            plots = is_plot;
        }
        if let Block::Heading(2, words) = block {
            contents.push_str(&format!("<a href=\"#s{number}\">{}</a>", text(words)));
        }
        body.push_str(&block_html(block, number));
    }
    if plots {
        body.push_str("</div>\n");
    }
    let at = body.find("</h1>").map_or(0, |at| at + "</h1>".len());
    body.insert_str(at, &format!("\n<nav>{contents}</nav>"));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{}</title>\n\
         <style>\n{STYLE}</style></head>\n<body><main>\n{body}</main></body></html>\n",
        escape(title)
    )
}

fn block_html(block: &Block, number: usize) -> String {
    match block {
        Block::Heading(level, words) => format!("<h{level} id=\"s{number}\">{}</h{level}>\n", text(words)),
        Block::Text(words) => format!("<p>{}</p>\n", text(words)),
        Block::List(items) => {
            let items: String = items.iter().map(|item| format!("<li>{}</li>", text(item))).collect();
            format!("<ul>{items}</ul>\n")
        }
        Block::Table(table) if table.rows.len() > FOLDED_ROWS => {
            let rows = table.rows.len();
            format!("<details><summary>{rows} rows</summary>{}</details>\n", table_html(table))
        }
        Block::Table(table) => table_html(table),
        Block::Plot(plot) => plot_html(plot),
        Block::Gallery { summary, plots } => {
            let plots: String = plots.iter().map(plot_html).collect();
            format!(
                "<details><summary>{}</summary><div class=\"plots\">{plots}</div></details>\n",
                text(summary)
            )
        }
    }
}

fn plot_html(Plot { svg, caption }: &Plot) -> String {
    format!("<figure><figcaption>{}</figcaption>{svg}</figure>", text(caption))
}

fn table_html(table: &Table) -> String {
    let class = |column: usize, tone: Tone| {
        let side = if column < table.left_columns { "l" } else { "" };
        let tone = match tone {
            Tone::Plain => "",
            Tone::Good => "good",
            Tone::Bad => "bad",
        };
        match format!("{side} {tone}").trim() {
            "" => String::new(),
            names => format!(" class=\"{names}\""),
        }
    };
    let head: String = (0..)
        .zip(&table.head)
        .map(|(column, word)| format!("<th{}>{}</th>", class(column, Tone::Plain), text(word)))
        .collect();
    let cell =
        |(column, cell): (usize, &Cell)| format!("<td{}>{}</td>", class(column, cell.tone), text(&cell.text));
    let row = |cells: &Vec<Cell>| format!("<tr>{}</tr>\n", (0..).zip(cells).map(cell).collect::<String>());
    let rows: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"table\"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Words with their code in backticks, and strong words in double asterisks.
fn text(words: &str) -> String {
    let mut html = escape(words);
    for (mark, tag) in [("**", "strong"), ("`", "code")] {
        let mut parts = html.split(mark);
        let mut marked = parts.next().unwrap_or_default().to_owned();
        for (number, part) in parts.enumerate() {
            let slash = if number % 2 == 0 { "" } else { "/" };
            marked.push_str(&format!("<{slash}{tag}>{part}"));
        }
        html = marked;
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped_and_marked() {
        assert_eq!(text("a < b & `c`, **d**"), "a &lt; b &amp; <code>c</code>, <strong>d</strong>");
    }

    #[test]
    fn page_asks_for_nothing_else() {
        let blocks = [Block::Heading(1, "Lab".to_owned()), Block::Heading(2, "More".to_owned())];
        let html = to_html("Lab", &blocks);
        assert!(
            html.contains("<nav><a href=\"#s1\">More</a></nav>")
                && html.contains("prefers-color-scheme:dark")
        );
        for word in ["http", "src=", "<script", "<link", "@import", "url("] {
            assert!(!html.contains(word), "{word}");
        }
    }
}
