//! Drawings of a report, as SVG that takes its colours from the page, so that they follow its light and dark themes.
//!
//! The drawing library knows no such colours: they are drawn in stand-ins, each of which is replaced by a variable of the page.

use super::figures::Figure;
use crate::Activity;
use crate::compare::{Configuration, Filesystem};
use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, Circle, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, IntoLogRange, PathElement,
    RGBColor, Rectangle, SVGBackend, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont};
use std::io;

/// Width of a drawing: that of a small phone.
const WIDTH: u32 = 360;
/// Stand-ins, with the variables of the page that replace them.
const COLOURS: [(RGBColor, &str); 11] = [
    (INK, "--ink"),
    (FAINT, "--line"),
    (RGBColor(1, 2, 11), "--ext4"),
    (RGBColor(1, 2, 12), "--xfs"),
    (RGBColor(1, 2, 13), "--btrfs"),
    (RGBColor(1, 2, 14), "--brindle"),
    (RGBColor(1, 2, 15), "--brindle-off"),
    (RGBColor(1, 2, 16), "--brindle-all"),
    (RGBColor(1, 2, 17), "--card"),
    (READ, "--read"),
    (WRITTEN, "--written"),
];
const INK: RGBColor = RGBColor(1, 2, 3);
const FAINT: RGBColor = RGBColor(1, 2, 4);
const READ: RGBColor = RGBColor(1, 2, 18);
const WRITTEN: RGBColor = RGBColor(1, 2, 19);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

fn draw(height: u32, picture: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        picture(&area).and_then(|()| area.present()).expect("a string takes everything");
    }
    for (RGBColor(red, green, blue), variable) in COLOURS {
        svg = svg.replace(&format!("#{red:02X}{green:02X}{blue:02X}"), &format!("var({variable})"));
    }
    let size = format!("width=\"{WIDTH}\" height=\"{height}\" ");
    svg.replacen(&size, "", 1).replace("font-family=\"sans-serif\"", "").replace('\n', "")
}

fn colour(configuration: &Configuration) -> RGBColor {
    let index = match (configuration.filesystem, configuration.options) {
        (Filesystem::Ext4, _) => 2,
        (Filesystem::Xfs, _) => 3,
        (Filesystem::Btrfs, _) => 4,
        (Filesystem::Brindle, "writeback=off") => 6,
        (Filesystem::Brindle, "writeback=all") => 7,
        (Filesystem::Brindle, _) => 5,
    };
    COLOURS[index].0
}

fn text_style(size: u32, across: HPos) -> TextStyle<'static> {
    let style = TextStyle::from(("sans-serif", size).into_font()).color(&INK);
    style.pos(Pos::new(across, VPos::Center))
}

/// A count of pixels of a share of a width.
#[expect(clippy::cast_possible_truncation, reason = "far less than 2^31")]
fn pixels(width: i32, share: f64) -> i32 {
    (f64::from(width) * share.clamp(0.0, 1.0)).round() as i32
}

/// Place of the bars: from the names on the left to the numbers on the right.
const BARS: (i32, i32) = (146, 316);
const ROW_HEIGHT: i32 = 24;

/// Bars of speeds beside a reference: name, median, least and greatest.
pub(super) fn bars(rows: &[(&Configuration, f64, f64, f64)]) -> String {
    let greatest = rows.iter().map(|(_, _, _, high)| *high).fold(1.0, f64::max);
    let width = BARS.1 - BARS.0;
    let height = ROW_HEIGHT * i32::try_from(rows.len()).unwrap_or(0) + 8;
    draw(u32::try_from(height).unwrap_or(0), |area| {
        let one = BARS.0 + pixels(width, 1.0 / greatest);
        for (row, (configuration, ratio, low, high)) in (0..).zip(rows) {
            let middle = 4 + ROW_HEIGHT * row + ROW_HEIGHT / 2;
            let [end, low, high] = [ratio, low, high].map(|value| BARS.0 + pixels(width, value / greatest));
            area.draw(&Text::new(configuration.name, (BARS.0 - 8, middle), text_style(12, HPos::Right)))?;
            let bar = [(BARS.0, middle - 7), (end.max(BARS.0 + 1), middle + 7)];
            area.draw(&Rectangle::new(bar, colour(configuration).filled()))?;
            area.draw(&PathElement::new([(low, middle), (high, middle)], INK.stroke_width(1)))?;
            for end in [low, high] {
                area.draw(&PathElement::new([(end, middle - 3), (end, middle + 3)], INK.stroke_width(1)))?;
            }
            let number = super::sections::ratio_text(*ratio);
            area.draw(&Text::new(number, (high.max(end) + 6, middle), text_style(12, HPos::Left)))?;
        }
        area.draw(&PathElement::new([(one, 0), (one, height)], FAINT.stroke_width(1)))
    })
}

/// Names of the points of a curve.
const POINTS: [(u32, &str); 7] =
    [(10, "1 %"), (100, "10 %"), (500, "50 %"), (900, "90 %"), (990, "99 %"), (999, "99.9 %"), (1000, "all")];

/// Curves of latencies in milliseconds, on a logarithmic scale.
pub(super) fn latencies(figures: &[&Figure]) -> String {
    let places = |figure: &Figure| {
        let of = |(place, (share, _)): (f64, &(u32, &str))| Some((place, figure.latency(*share)?.max(1e-3)));
        (0..).map(f64::from).zip(&POINTS).filter_map(of).collect::<Vec<_>>()
    };
    let curves: Vec<_> = figures.iter().map(|figure| (*figure, places(figure))).collect();
    let times = || curves.iter().flat_map(|(_, curve)| curve.iter().map(|(_, time)| *time));
    let (least, greatest) = (times().fold(f64::MAX, f64::min), times().fold(1e-3, f64::max));
    // Whole powers of ten, of which there are two at least.
    let [least, greatest] =
        [(least * 0.99).log10().floor(), (greatest * 1.01).log10().ceil()].map(|power| 10f64.powf(power));
    let legend = 18 * u32::try_from(curves.len()).unwrap_or(0);
    let height = 210 + legend;
    draw(height, |area| {
        let (plot, names) = area.split_vertically(210);
        let mut chart = ChartBuilder::on(&plot)
            .margin_right(18)
            .margin_top(8)
            .x_label_area_size(24)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..6.0, (least..greatest).log_scale())?;
        let point = |place: &f64| {
            let name = (0..).map(f64::from).zip(POINTS).find(|(other, _)| (other - place).abs() < 1e-6);
            name.map_or_else(String::new, |(_, (_, name))| name.to_owned())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(FAINT.mix(0.0))
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .label_style(("sans-serif", 11).into_font().color(&INK))
            .x_labels(POINTS.len())
            .y_labels(5)
            .x_label_formatter(&point)
            .y_label_formatter(&|time| format!("{} ms", super::sections::three_digits(*time)))
            .draw()?;
        for (figure, curve) in &curves {
            let colour = colour(figure.configuration);
            chart.plotting_area().draw(&PathElement::new(curve.clone(), colour.stroke_width(2)))?;
            for place in curve {
                chart.plotting_area().draw(&Circle::new(*place, 3, colour.filled()))?;
            }
        }
        for (row, (figure, _)) in (0..).zip(&curves) {
            let middle = 18 * row + 9;
            let mark = [(60, middle - 5), (70, middle + 5)];
            names.draw(&Rectangle::new(mark, colour(figure.configuration).filled()))?;
            names.draw(&Text::new(figure.configuration.name, (78, middle), text_style(12, HPos::Left)))?;
        }
        Ok(())
    })
}

/// Place of the grid of an activity: from the offsets on the left to the margin on the right.
const GRID: (i32, i32) = (64, 350);
/// Height of a row of it.
const CELL_HEIGHT: i32 = 3;
/// Height of the seeks below it.
const SEEKS_HEIGHT: i32 = 32;

/// Requests by time, from left to right, and offset, from above: reads in the upper part of a cell, writes in the lower one; and seeks.
pub(super) fn activity(activity: &Activity, name: &str) -> String {
    let rows = i32::try_from(activity.rows).unwrap_or(0);
    let columns = activity.seeks.len().max(1);
    #[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
    let share = |column: usize| column as f64 / columns as f64;
    let across = |column: usize| GRID.0 + pixels(GRID.1 - GRID.0, share(column));
    let (top, bottom) = (20, 20 + rows * CELL_HEIGHT);
    let most = activity.seeks.iter().copied().max().unwrap_or(0);
    let ground = if most > 0 { bottom + 6 + SEEKS_HEIGHT } else { bottom + 1 };
    draw(u32::try_from(ground + 18).unwrap_or(0), |area| {
        area.draw(&Text::new(name, (GRID.0, 8), text_style(12, HPos::Left)))?;
        for (first, end, row, is_read) in runs(activity) {
            let above = top + i32::try_from(row).unwrap_or(0) * CELL_HEIGHT;
            let (colour, from, to) = if is_read { (READ, 0, 1) } else { (WRITTEN, 1, 3) };
            let cell = [(across(first), above + from), (across(end).max(across(first) + 1), above + to)];
            area.draw(&Rectangle::new(cell, colour.filled()))?;
        }
        for (column, seeks) in activity.seeks.iter().enumerate().filter(|(_, seeks)| **seeks > 0) {
            #[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
            let height = pixels(SEEKS_HEIGHT, *seeks as f64 / most as f64).max(1);
            let bar = [(across(column), ground - height), (across(column + 1), ground)];
            area.draw(&Rectangle::new(bar, INK.mix(0.5).filled()))?;
        }
        for line in [bottom + 1, ground] {
            area.draw(&PathElement::new([(GRID.0, line), (GRID.1, line)], FAINT.stroke_width(1)))?;
        }
        let end = activity.first_byte + activity.rows * activity.row_bytes;
        let seconds = super::sections::seconds_text(activity.column_ns * columns as u64);
        let labels = [
            (super::sections::size_text(activity.first_byte), top + 5),
            (super::sections::size_text(end), bottom - 5),
            (format!("{most} seeks"), bottom + 14),
        ];
        let labels = labels.into_iter().take(if most > 0 { 3 } else { 2 });
        for (label, middle) in labels {
            area.draw(&Text::new(label, (GRID.0 - 6, middle), text_style(11, HPos::Right)))?;
        }
        area.draw(&Text::new("0", (GRID.0, ground + 10), text_style(11, HPos::Left)))?;
        area.draw(&Text::new(seconds, (GRID.1, ground + 10), text_style(11, HPos::Right)))
    })
}

/// Cells of a row that lie side by side and were all read, or all written: first column, the one after the last, row, and true for reads.
fn runs(activity: &Activity) -> Vec<(usize, usize, u64, bool)> {
    let mut touched: Vec<(u64, bool, usize)> = Vec::new();
    for &(column, row, read, written) in &activity.cells {
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        touched.extend((read > 0).then_some((row, true, column)));
        touched.extend((written > 0).then_some((row, false, column)));
    }
    touched.sort_unstable();
    let mut runs: Vec<(usize, usize, u64, bool)> = Vec::new();
    for (row, is_read, column) in touched {
        match runs.last_mut() {
            Some(run) if (run.1, run.2, run.3) == (column, row, is_read) => run.1 += 1,
            _ => runs.push((column, column + 1, row, is_read)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_drawn_where_and_when_they_were() {
        let cells = vec![(0, 0, 4, 0), (1, 0, 4, 8), (1, 3, 0, 8), (2, 3, 0, 8), (4, 3, 0, 8)];
        let told = Activity {
            column_ns: 500_000_000,
            first_byte: 1 << 30,
            row_bytes: 1 << 28,
            rows: 4,
            seeks: vec![1, 0, 0, 0, 9],
            cells,
        };
        let expected = [(1, 2, 0, false), (0, 2, 0, true), (1, 3, 3, false), (4, 5, 3, false)];
        assert_eq!(runs(&told), expected);
        let svg = activity(&told, "hdd");
        assert_eq!(svg.matches("var(--written)").count(), 3, "{svg}");
        assert_eq!(svg.matches("var(--read)").count(), 1, "{svg}");
        for words in ["hdd", "1.00 GiB", "2.00 GiB", "2.50 s", "9 seeks"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        assert!(!svg.contains('#'), "a colour that no theme changes: {svg}");
        activity(&Activity::default(), "idle");
    }

    #[test]
    fn drawings_take_their_colours_from_the_page() {
        let of = |name| Configuration::find(name).expect("there is one");
        let svg = bars(&[(of("btrfs-hdd"), 1.0, 0.9, 1.1), (of("brindle-ssd+hdd-all"), 2.0, 1.5, 2.5)]);
        assert!(
            svg.contains("var(--btrfs)") && svg.contains("var(--brindle-all)") && svg.contains("viewBox")
        );
        assert!(svg.contains("brindle-ssd+hdd-all") && svg.contains("2.00"), "{svg}");
        assert!(!svg.contains('#'), "a colour that no theme changes: {svg}");
    }
}
