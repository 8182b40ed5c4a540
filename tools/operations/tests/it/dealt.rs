//! Which form runs a case: on each day some, in each form within days, every case in the end.

use std::collections::BTreeSet;

use taper_operations::{Check, Draw, rows};
use taper_testing::deal::{Deal, Form, dealt};

const DAYS: std::ops::Range<u64> = 20_785..20_785 + 2000;

#[test]
fn a_group_has_every_form_within_four_days() {
    for cases in 1..40 {
        for day in DAYS {
            let four: Vec<Form> =
                (day..day + 4).flat_map(|day| dealt("group", cases, 4, day)).map(|(_, form)| form).collect();
            for form in Form::ALL {
                assert!(four.contains(&form), "{cases} cases, from day {day}: {form:?} is not in {four:?}");
            }
        }
    }
}

#[test]
fn a_case_runs_once_a_day_and_in_the_end_in_every_form() {
    for cases in 1..40 {
        let mut met = BTreeSet::new();
        for day in DAYS {
            let today: Vec<(usize, Form)> = dealt("group", cases, 4, day).collect();
            assert_eq!(today.len(), cases.div_ceil(4));
            let distinct: BTreeSet<usize> = today.iter().map(|(case, _)| *case).collect();
            assert_eq!(distinct.len(), today.len(), "{cases} cases, day {day}: {today:?}");
            met.extend(today.into_iter().map(|(case, form)| (case, form as usize)));
        }
        assert_eq!(met.len(), cases * Form::ALL.len(), "{cases} cases");
    }
}

#[test]
fn names_take_turns() {
    for name in ["a", "b", "products of 3 and 4", "f16"] {
        let taken = |form, day| Deal { form, day }.takes_name(name);
        for day in DAYS {
            let forms = |day| Form::ALL.into_iter().filter(|form| taken(*form, day)).count();
            assert_eq!((day..day + 4).map(forms).sum::<usize>(), 1, "{name}");
        }
        assert!(Form::ALL.into_iter().all(|form| DAYS.take(32).any(|day| taken(form, day))), "{name}");
    }
}

#[test]
fn every_row_is_tried_each_day() {
    let draws = Form::ALL.map(|form| Draw::dealt(form, 20_785));
    for row in rows() {
        let ways = Check::ALL
            .into_iter()
            .flat_map(|check| check.ways(&row).into_iter().map(move |way| (check, way)));
        let of_form = |draw: &Draw| ways.clone().filter(|(check, way)| draw.takes(&row, *check, way)).count();
        let (taken, all) = (draws.iter().map(of_form).sum::<usize>(), ways.clone().count());
        assert_eq!(taken, all.div_ceil(4), "{}", row.label());
    }
}

#[test]
fn a_deal_is_written_by_form_and_day() {
    let deal = Deal { form: Form::Windows, day: 20_785 };
    assert_eq!((deal.to_string(), "windows@20785".parse()), ("windows@20785".to_string(), Ok(deal)));
    for wrong in ["", "tiled", "tiled@", "other@1", "@1", "tiled@-1"] {
        assert!(wrong.parse::<Deal>().unwrap_err().contains("tiled@20785"), "{wrong}");
    }
}
