//! Messages as tables of fields, each with its name, its number in protobuf and its name in JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess};
use serde_json::value::RawValue;

use super::json::{Array, Entries, Object, OrNull, Text};
use super::protobuf::Field;
use super::{CommandError, Data};

/// A message: fields by name and by number. [`message!`] implements it.
pub(super) trait Message<'a>: Default {
    /// Reads the value of the entry with this key. Skips it if the field is unknown.
    fn read_json<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;

    /// Takes in a field. Ignores it if it is unknown.
    fn read_protobuf(&mut self, field: Field<'a>) -> Result<(), CommandError>;
}

/// What a field may hold. Its default stands for an absent field.
pub(super) trait Value<'a>: Default {
    /// Reads a JSON value. Null is the default.
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error>;

    /// Takes in one occurrence of the field: the last number or string counts, messages merge, lists and maps grow.
    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError>;
}

/// Defines messages: `field: number "name in JSON" => type`.
macro_rules! message {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident<'a> {
            $( $(#[$field_meta:meta])* $field:ident: $number:literal $json:literal => $type:ty, )*
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        $vis struct $name<'a> {
            $( $(#[$field_meta])* $vis $field: $type, )*
        }

        impl<'a> $crate::centrifuge::message::Message<'a> for $name<'a> {
            fn read_json<A: serde::de::MapAccess<'a>>(
                &mut self,
                key: &str,
                map: &mut A,
            ) -> Result<(), A::Error> {
                match key {
                    $( $json => self.$field = $crate::centrifuge::json::field(map, $json)?, )*
                    _ => $crate::centrifuge::json::skip(map)?,
                }
                Ok(())
            }

            fn read_protobuf(
                &mut self,
                field: $crate::centrifuge::protobuf::Field<'a>,
            ) -> Result<(), $crate::centrifuge::CommandError> {
                match field.number {
                    $( $number => $crate::centrifuge::message::Value::merge(
                        &mut self.$field,
                        field.named($json),
                    ), )*
                    _ => Ok(()),
                }
            }
        }

        impl<'a> $crate::centrifuge::message::Value<'a> for $name<'a> {
            fn from_json<D: serde::de::Deserializer<'a>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                $crate::centrifuge::message::from_json(deserializer)
            }

            fn merge(
                &mut self,
                field: $crate::centrifuge::protobuf::Field<'a>,
            ) -> Result<(), $crate::centrifuge::CommandError> {
                $crate::centrifuge::message::merge(self, field)
            }
        }
    )* };
}
pub(super) use message;

pub(super) fn from_json<'a, M: Message<'a>, D: Deserializer<'a>>(
    deserializer: D,
) -> Result<M, D::Error> {
    let message = deserializer.deserialize_option(OrNull(Object::<M>::new()))?;
    Ok(message.unwrap_or_default())
}

pub(super) fn merge<'a, M: Message<'a>>(
    message: &mut M,
    field: Field<'a>,
) -> Result<(), CommandError> {
    let mut reader = field.message()?;
    while let Some(field) = reader.next_field()? {
        message.read_protobuf(field)?;
    }
    Ok(())
}

/// Implements [`Value`] for numbers. Protobuf keeps the low bits of a varint that is too large for the type.
macro_rules! number {
    ($($type:ty),*) => { $(
        impl<'a> Value<'a> for $type {
            fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Option::deserialize(deserializer)?.unwrap_or_default())
            }

            #[expect(
                clippy::allow_attributes,
                reason = "the lints below hold for some of the types only"
            )]
            fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
                #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "as protobuf requires")]
                {
                    *self = field.varint()? as $type;
                }
                Ok(())
            }
        }
    )* };
}
number!(u32, u64, i32, i64);

impl<'a> Value<'a> for bool {
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or_default())
    }

    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
        *self = field.varint()? != 0;
        Ok(())
    }
}

impl<'a> Value<'a> for Cow<'a, str> {
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_option(OrNull(Text))?;
        Ok(text.unwrap_or_default())
    }

    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
        *self = Cow::Borrowed(field.text()?);
        Ok(())
    }
}

impl<'a> Value<'a> for Data<'a> {
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        // Null is a value as any other: a publication may have it as its data.
        <&'a RawValue>::deserialize(deserializer).map(|raw| Self::Json(raw.get()))
    }

    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
        *self = Self::Binary(field.bytes()?);
        Ok(())
    }
}

impl<'a, M: Message<'a> + Value<'a>> Value<'a> for Option<M> {
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(OrNull(Object::new()))
    }

    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
        self.get_or_insert_default().merge(field)
    }
}

impl<'a, T: Value<'a>> Value<'a> for Vec<T> {
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let mut items = Self::new();
        let push = |item| {
            items.push(item);
            Ok(())
        };
        deserializer.deserialize_option(OrNull(Array(push, PhantomData)))?;
        Ok(items)
    }

    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
        let mut item = T::default();
        item.merge(field)?;
        self.push(item);
        Ok(())
    }
}

impl<'a, T: Value<'a>> Value<'a> for BTreeMap<Cow<'a, str>, T> {
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = deserializer.deserialize_option(OrNull(Entries(PhantomData)))?;
        Ok(entries.unwrap_or_default())
    }

    /// In protobuf each entry is a message with a key (1) and a value (2).
    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
        let mut entry = field.message()?;
        let mut key: Cow<'a, str> = Cow::default();
        let mut value = T::default();
        while let Some(part) = entry.next_field()? {
            match part.number {
                1 => key.merge(part)?,
                2 => value.merge(part)?,
                _ => {}
            }
        }
        self.insert(key, value);
        Ok(())
    }
}
