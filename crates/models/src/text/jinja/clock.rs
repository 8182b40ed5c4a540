//! `strftime_now`: the time now as text. It is the time in UTC, since the standard library knows no zones.

use web_time::SystemTime;

use super::{Fault, value::Budget};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The time now in a format of `strftime`.
pub(super) fn now(format: &str, budget: &Budget) -> Result<String, Fault> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    at(since.as_secs(), format, budget)
}

/// A time in seconds since 1970 in a format of `strftime`.
fn at(seconds: u64, format: &str, budget: &Budget) -> Result<String, Fault> {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (year, month, day) = civil(days);
    let weekday = ((days + 4) % 7) as usize;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month - 1];
    let of_year = before + day + u64::from(is_leap && month > 2);
    let hour12 = (hour + 11) % 12 + 1;
    let half = if hour < 12 { "AM" } else { "PM" };
    let (name, long) = (DAYS[weekday], MONTHS[month - 1]);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        // A minus leaves zeros out, as in glibc.
        let width = if directive == Some('-') { 0 } else { 2 };
        if directive == Some('-') {
            directive = chars.next();
        }
        out += &match directive {
            Some('Y') => format!("{year:04}"),
            Some('y') => format!("{:0width$}", year % 100),
            Some('m') => format!("{month:0width$}"),
            Some('d') => format!("{day:0width$}"),
            Some('e') => format!("{day:width$}"),
            Some('H') => format!("{hour:0width$}"),
            Some('I') => format!("{hour12:0width$}"),
            Some('M') => format!("{minute:0width$}"),
            Some('S') => format!("{second:0width$}"),
            Some('j') => format!("{of_year:0width$}", width = if width == 0 { 0 } else { 3 }),
            Some('f') => "000000".into(),
            Some('p') => half.into(),
            Some('A') => name.into(),
            Some('a') => name[..3].into(),
            Some('B') => long.into(),
            Some('b' | 'h') => long[..3].into(),
            Some('F') => format!("{year:04}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('D') => format!("{month:02}/{day:02}/{:02}", year % 100),
            Some('c') => {
                format!("{} {} {day:2} {hour:02}:{minute:02}:{second:02} {year:04}", &name[..3], &long[..3])
            }
            Some('x') => format!("{month:02}/{day:02}/{:02}", year % 100),
            Some('X') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('w') => weekday.to_string(),
            Some('u') => (if weekday == 0 { 7 } else { weekday }).to_string(),
            Some('s') => seconds.to_string(),
            Some('n') => "\n".into(),
            Some('t') => "\t".into(),
            Some('z' | 'Z') => String::new(),
            Some('%') => "%".into(),
            Some(other) => return Err(Fault::new(format!("%{other} is no part of a date that is known"))),
            None => return Err(Fault::new("a format ends with %")),
        };
    }
    budget.bytes(out.len())?;
    Ok(out)
}

/// Year, month and day of a day after 1970 (Hinnant: chrono-compatible low-level date algorithms).
fn civil(days: u64) -> (u64, usize, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month as usize, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::jinja::Limits;

    #[test]
    fn times_have_the_text_of_python() {
        let budget = Budget::new(Limits { steps: 1000, bytes: 1000 });
        let text = |seconds: u64, format: &str| at(seconds, format, &budget).unwrap();
        assert_eq!(text(0, "%Y-%m-%d %H:%M:%S %A %j"), "1970-01-01 00:00:00 Thursday 001");
        assert_eq!(text(951_782_399, "%d %B %Y, %I:%M %p"), "28 February 2000, 11:59 PM");
        assert_eq!(text(951_782_400, "%a %b %-d %y %j"), "Tue Feb 29 00 060");
        assert_eq!(text(4_107_542_399, "%F %T %c"), "2100-02-28 23:59:59 Sun Feb 28 23:59:59 2100");
        assert_eq!(text(4_107_542_400, "%D %u %w %% %e"), "03/01/00 1 1 %  1");
        assert!(at(0, "%Q", &budget).is_err() && at(0, "%", &budget).is_err());
    }
}
