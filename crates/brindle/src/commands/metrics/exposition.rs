//! The text format of Prometheus: families of samples, each with its help and type.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows, until its source begins anew.
    Counter,
    /// Buckets, a sum and a count.
    Histogram,
}

/// Labels of a sample: names and values.
pub(super) type Labels<'l> = [(&'l str, &'l str)];

/// Families by their names.
#[derive(Debug, Default)]
pub(super) struct Exposition(BTreeMap<&'static str, Family>);

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: &'static str,
    samples: String,
}

impl Exposition {
    /// Adds a sample.
    pub(super) fn add(
        &mut self,
        (name, kind, help): (&'static str, Kind, &'static str),
        labels: &Labels<'_>,
        value: impl Into<Number>,
    ) {
        let value = value.into();
        self.samples((name, kind, help), |samples| sample(samples, name, labels, &value));
    }

    /// Adds a histogram: upper bounds of its buckets with the number of values in each, and the sum. The last bucket has no bound.
    pub(super) fn add_histogram(
        &mut self,
        (name, help): (&'static str, &'static str),
        labels: &Labels<'_>,
        buckets: &[(Number, u64)],
        sum: &Number,
    ) {
        self.samples((name, Kind::Histogram, help), |samples| {
            let mut count = 0u64;
            let of_bucket = format!("{name}_bucket");
            for (index, (bound, values)) in buckets.iter().enumerate() {
                count = count.saturating_add(*values);
                let bound = if index + 1 == buckets.len() { "+Inf" } else { &bound.0 };
                sample(samples, &of_bucket, &[labels, &[("le", bound)]].concat(), &count.into());
            }
            sample(samples, &format!("{name}_sum"), labels, sum);
            sample(samples, &format!("{name}_count"), labels, &count.into());
        });
    }

    fn samples(
        &mut self,
        (name, kind, help): (&'static str, Kind, &'static str),
        add: impl FnOnce(&mut String),
    ) {
        let family = self.0.entry(name).or_insert_with(|| Family { kind, help, samples: String::new() });
        assert!((family.kind, family.help) == (kind, help), "{name} is declared twice");
        add(&mut family.samples);
    }

    /// The text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, Family { kind, help, samples }) in &self.0 {
            let kind = match kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
                Kind::Histogram => "histogram",
            };
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

/// A number as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number(String);

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self(u8::from(value).to_string())
    }
}

impl Number {
    /// A number of millionths.
    pub(super) fn millionths(value: u64) -> Self {
        Self(format!("{}.{:06}", value / 1_000_000, value % 1_000_000))
    }

    /// Nanoseconds as seconds.
    pub(super) fn nanoseconds(value: u64) -> Self {
        Self(format!("{}.{:09}", value / 1_000_000_000, value % 1_000_000_000))
    }

    /// Percent as a ratio.
    pub(super) fn percent(value: u64) -> Self {
        Self(format!("{}.{:02}", value / 100, value % 100))
    }
}

fn sample(text: &mut String, name: &str, labels: &Labels<'_>, value: &Number) {
    let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escape(value));
    let labels: Vec<String> = labels.iter().map(label).collect();
    let _ = writeln!(text, "{name}{{{}}} {}", labels.join(","), value.0);
}

/// The value of a label.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_family_stand_together_with_labels_escaped() {
        let mut exposition = Exposition::default();
        let size = ("brindle_x_bytes", Kind::Gauge, "Size.");
        exposition.add(size, &[("path", "a\"\\\n")], 1);
        exposition.add(("brindle_a_total", Kind::Counter, "Count."), &[], 7);
        exposition.add(size, &[("path", "b")], true);
        assert_eq!(
            exposition.text(),
            "# HELP brindle_a_total Count.\n# TYPE brindle_a_total counter\nbrindle_a_total{} 7\n\
             # HELP brindle_x_bytes Size.\n# TYPE brindle_x_bytes gauge\nbrindle_x_bytes{path=\"a\\\"\\\\\\n\"} 1\n\
             brindle_x_bytes{path=\"b\"} 1\n"
        );
    }

    #[test]
    fn buckets_of_a_histogram_are_cumulative() {
        let mut exposition = Exposition::default();
        let buckets = [(Number::millionths(1), 2), (Number::millionths(3), 0), (Number::millionths(7), 5)];
        exposition.add_histogram(
            ("h", "Times."),
            &[("uuid", "u")],
            &buckets,
            &Number::nanoseconds(1_500_000_000),
        );
        assert_eq!(
            exposition.text(),
            "# HELP h Times.\n# TYPE h histogram\nh_bucket{uuid=\"u\",le=\"0.000001\"} 2\n\
             h_bucket{uuid=\"u\",le=\"0.000003\"} 2\nh_bucket{uuid=\"u\",le=\"+Inf\"} 7\n\
             h_sum{uuid=\"u\"} 1.500000000\nh_count{uuid=\"u\"} 7\n"
        );
    }

    #[test]
    fn ratios_have_two_digits() {
        assert_eq!([Number::percent(5), Number::percent(100)].map(|number| number.0), ["0.05", "1.00"]);
    }
}
