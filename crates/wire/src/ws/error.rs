//! Protocol errors of a peer, and the close codes for them.

use super::CloseCode;
use std::fmt;

/// A frame that ends the connection. The peer is always the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolError {
    /// RSV1, RSV2 or RSV3 is set, and no negotiated extension uses it in this frame. permessage-deflate uses RSV1 in the
    /// first frame of a message (RFC 7692, section 6).
    ReservedBits,
    /// Opcode 3 to 7 or 11 to 15.
    ReservedOpcode,
    /// A close, ping or pong without FIN.
    FragmentedControl,
    /// A close, ping or pong of more than 125 bytes.
    ControlTooLong,
    /// A continuation while no message is open.
    UnexpectedContinuation,
    /// A text or binary frame while a message is open.
    ExpectedContinuation,
    /// A frame without a mask, to a server.
    Unmasked,
    /// A frame with a mask, to a client.
    Masked,
    /// A length in more bytes than it needs (RFC 6455, section 5.2).
    LengthNotMinimal,
    /// A 64-bit length with its top bit set.
    LengthOutOfRange,
    /// More than [`super::Limits::frame_bytes_max`].
    FrameTooBig,
    /// More than [`super::Limits::message_bytes_max`].
    MessageTooBig,
    /// More than [`super::Limits::fragments_max`].
    TooManyFragments,
    /// A compressed message of more than 1024 blocks that are each marked as the final one.
    TooManyFinalBlocks,
    /// A compressed message that is not DEFLATE data, or is cut off.
    InvalidDeflate,
    /// A text message that is not UTF-8.
    InvalidText,
    /// A close reason that is not UTF-8.
    InvalidCloseReason,
    /// A close code that must not be sent.
    InvalidCloseCode,
    /// A close frame of one byte: half a code.
    TruncatedCloseCode,
}

impl ProtocolError {
    /// All errors, for metrics that list their labels in advance.
    pub const ALL: [Self; 19] = [
        Self::ReservedBits,
        Self::ReservedOpcode,
        Self::FragmentedControl,
        Self::ControlTooLong,
        Self::UnexpectedContinuation,
        Self::ExpectedContinuation,
        Self::Unmasked,
        Self::Masked,
        Self::LengthNotMinimal,
        Self::LengthOutOfRange,
        Self::FrameTooBig,
        Self::MessageTooBig,
        Self::TooManyFragments,
        Self::TooManyFinalBlocks,
        Self::InvalidDeflate,
        Self::InvalidText,
        Self::InvalidCloseReason,
        Self::InvalidCloseCode,
        Self::TruncatedCloseCode,
    ];

    /// The code to close with.
    #[must_use]
    pub fn code(self) -> CloseCode {
        match self {
            Self::FrameTooBig
            | Self::MessageTooBig
            | Self::TooManyFragments
            | Self::TooManyFinalBlocks => CloseCode::TOO_BIG,
            // RFC 7692 names no code. The data does not fit RSV1.
            Self::InvalidDeflate | Self::InvalidText | Self::InvalidCloseReason => {
                CloseCode::INVALID_PAYLOAD
            }
            Self::ReservedBits
            | Self::ReservedOpcode
            | Self::FragmentedControl
            | Self::ControlTooLong
            | Self::UnexpectedContinuation
            | Self::ExpectedContinuation
            | Self::Unmasked
            | Self::Masked
            | Self::LengthNotMinimal
            | Self::LengthOutOfRange
            | Self::InvalidCloseCode
            | Self::TruncatedCloseCode => CloseCode::PROTOCOL_ERROR,
        }
    }

    /// What was wrong in the frame and what to do about it. Short enough for a close frame.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::ReservedBits => {
                "Reserved bits are set where no negotiated extension has a use for them: send them as 0."
            }
            Self::ReservedOpcode => "The opcode is reserved: send 0, 1, 2, 8, 9 or 10.",
            Self::FragmentedControl => {
                "A control frame has no FIN: send close, ping and pong in one frame."
            }
            Self::ControlTooLong => {
                "A control frame has more than 125 bytes: send less with close, ping and pong."
            }
            Self::UnexpectedContinuation => {
                "A continuation came with no message open: start with text or binary."
            }
            Self::ExpectedContinuation => {
                "A new message came inside another: finish the first with FIN."
            }
            Self::Unmasked => "The frame has no mask: a client must mask every frame.",
            Self::Masked => "The frame has a mask: a server must not mask.",
            Self::LengthNotMinimal => {
                "The length takes more bytes than it needs: use its shortest form."
            }
            Self::LengthOutOfRange => "The length has its top bit set: send less than 2^63 bytes.",
            Self::FrameTooBig => "The frame is larger than is accepted here: send smaller ones.",
            Self::MessageTooBig => {
                "The message is larger than is accepted here: send smaller ones."
            }
            Self::TooManyFragments => {
                "The message has too many fragments: send it in fewer frames."
            }
            Self::TooManyFinalBlocks => {
                "The compressed message has over 1024 final blocks: compress it as one stream."
            }
            Self::InvalidDeflate => {
                "The message has RSV1 but is not DEFLATE data: compress it whole, without context."
            }
            Self::InvalidText => "The text message is not UTF-8: send other bytes as binary.",
            Self::InvalidCloseReason => "The close reason is not UTF-8: send text.",
            Self::InvalidCloseCode => {
                "The close code is reserved or unknown: send 1000, or one from 3000 to 4999."
            }
            Self::TruncatedCloseCode => {
                "The close frame has one byte: send none, or a code of two bytes."
            }
        }
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved_bits",
            Self::ReservedOpcode => "reserved_opcode",
            Self::FragmentedControl => "fragmented_control",
            Self::ControlTooLong => "control_too_long",
            Self::UnexpectedContinuation => "unexpected_continuation",
            Self::ExpectedContinuation => "expected_continuation",
            Self::Unmasked => "unmasked_frame",
            Self::Masked => "masked_frame",
            Self::LengthNotMinimal => "length_not_minimal",
            Self::LengthOutOfRange => "length_out_of_range",
            Self::FrameTooBig => "frame_too_big",
            Self::MessageTooBig => "message_too_big",
            Self::TooManyFragments => "too_many_fragments",
            Self::TooManyFinalBlocks => "too_many_final_blocks",
            Self::InvalidDeflate => "invalid_deflate",
            Self::InvalidText => "invalid_text",
            Self::InvalidCloseReason => "invalid_close_reason",
            Self::InvalidCloseCode => "invalid_close_code",
            Self::TruncatedCloseCode => "truncated_close_code",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::super::REASON_BYTES_MAX;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_error_can_be_said_in_a_close_frame() {
        for error in ProtocolError::ALL {
            assert!(
                error.sentence().len() <= REASON_BYTES_MAX,
                "{error:?}: {}",
                error.sentence().len()
            );
            assert!(error.sentence().ends_with('.'), "{error:?}");
            assert!(error.code().is_valid_on_wire(), "{error:?}");
        }
    }

    #[test]
    fn labels_are_distinct() {
        let labels: BTreeSet<_> = ProtocolError::ALL
            .iter()
            .map(|error| error.label())
            .collect();
        assert_eq!(labels.len(), ProtocolError::ALL.len());
    }
}
