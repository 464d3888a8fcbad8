//! The commands on sets that filters support: `SADD`, `SISMEMBER`, `SMISMEMBER`, `SCARD`. Replies are
//! integers in both versions of the protocol, as in Redis.

use super::{AnswerForm, Command, InsertItems, Items, NewBloom, Parsed};
use crate::arguments::Arguments;

pub(crate) fn add(arguments: Arguments<'_>) -> Parsed<'_> {
    let items = Items::of(arguments, AnswerForm::Count);
    Ok(Command::Insert(InsertItems { items, new: Some(NewBloom::default()), request: None }))
}

pub(crate) fn is_member(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Contains(Items::of(arguments, AnswerForm::Count)))
}

pub(crate) fn are_members(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Contains(Items::of(arguments, AnswerForm::Numbers)))
}

pub(crate) fn cardinality(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cardinality { key: arguments.at(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::table;

    #[test]
    fn answers_are_numbers() {
        let form = |line: &str| {
            let request: Request = line.split(' ').collect();
            let arguments = Arguments::new(&request);
            match table::find(arguments).unwrap().parse(arguments).unwrap() {
                Command::Insert(InsertItems { items, new, .. }) => {
                    assert_eq!(new, Some(NewBloom::default()));
                    (items.items.len(), items.form)
                }
                Command::Contains(items) => (items.items.len(), items.form),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(form("SADD k a b"), (2, AnswerForm::Count));
        assert_eq!(form("sismember k a"), (1, AnswerForm::Count));
        assert_eq!(form("SMISMEMBER k a"), (1, AnswerForm::Numbers));
        assert!(!AnswerForm::Count.is_list() && AnswerForm::Numbers.is_list());
    }
}
