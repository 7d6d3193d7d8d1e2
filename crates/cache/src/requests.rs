//! Requests that are under way: of two that touch a block, and of which one writes, the later one waits.

/// Requests under way and waiting, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    next: u64,
    active: Vec<ActiveRequest>,
}

#[derive(Debug)]
struct ActiveRequest {
    ticket: u64,
    first: u64,
    last: u64,
    writes: bool,
}

impl Requests {
    /// Adds a request for the blocks from the first to the last one; its ticket.
    pub(crate) fn enter(&mut self, first: u64, last: u64, writes: bool) -> u64 {
        self.next += 1;
        self.active.push(ActiveRequest { ticket: self.next, first, last, writes });
        self.next
    }

    /// Returns true if no earlier request is in the way.
    pub(crate) fn may_go(&self, ticket: u64) -> bool {
        let Some(own) = self.active.iter().position(|request| request.ticket == ticket) else { return false };
        let (earlier, own) = (&self.active[..own], &self.active[own]);
        let is_in_the_way = |other: &ActiveRequest| {
            other.first <= own.last && own.first <= other.last && (other.writes || own.writes)
        };
        !earlier.iter().any(is_in_the_way)
    }

    /// Takes a request out.
    pub(crate) fn leave(&mut self, ticket: u64) {
        // Not swapped: the order is that of arrival.
        self.active.retain(|request| request.ticket != ticket);
    }

    /// Returns true if a request touches a block.
    pub(crate) fn touch(&self, block: u64) -> bool {
        self.active.iter().any(|request| (request.first..=request.last).contains(&block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_wait_for_earlier_requests_of_their_blocks() {
        let mut requests = Requests::default();
        let reader = requests.enter(0, 9, false);
        let other_reader = requests.enter(5, 20, false);
        let writer = requests.enter(9, 9, true);
        let late_reader = requests.enter(9, 9, false);
        let elsewhere = requests.enter(21, 30, true);
        let may_go = |requests: &Requests| {
            [reader, other_reader, writer, late_reader, elsewhere].map(|ticket| requests.may_go(ticket))
        };
        assert_eq!(may_go(&requests), [true, true, false, false, true]);
        requests.leave(reader);
        assert_eq!(may_go(&requests), [false, true, false, false, true]);
        requests.leave(other_reader);
        assert_eq!(may_go(&requests), [false, false, true, false, true]);
        requests.leave(writer);
        assert_eq!(may_go(&requests), [false, false, false, true, true]);
        assert!(requests.touch(21) && requests.touch(9) && !requests.touch(8));
    }
}
