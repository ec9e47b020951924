//! The protocol's numbers, and the texts that clients expect with them.

/// Defines an enum of codes: `Name = number, "text"`.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident($repr:ty) {
        $( $(#[$variant_meta:meta])* $variant:ident = $number:literal, $text:literal; )*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($repr)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant = $number, )*
        }

        impl $name {
            /// All codes, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> $repr {
                self as $repr
            }

            /// The text that goes with the number. Never empty, because some clients require one.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )*
                }
            }
        }
    };
}

codes! {
    /// Errors in replies. 0 to 399 are the protocol's, 400 to 1999 the application's.
    pub enum ErrorCode(u32) {
        /// Also: a call to the application failed.
        Internal = 100, "internal server error";
        /// For applications.
        Unauthorized = 101, "unauthorized";
        /// The channel's namespace is not configured.
        UnknownChannel = 102, "unknown channel";
        /// The client lacks the right.
        PermissionDenied = 103, "permission denied";
        /// The method's namespace is not configured.
        MethodNotFound = 104, "method not found";
        /// Also while the first subscribe is in flight, and for server-side subscriptions.
        AlreadySubscribed = 105, "already subscribed";
        /// Too many channels for one connection.
        LimitExceeded = 106, "limit exceeded";
        /// Something in the request is not valid.
        BadRequest = 107, "bad request";
        /// The namespace does not have this feature.
        NotAvailable = 108, "not available";
        /// The client should bring a new token.
        TokenExpired = 109, "token expired";
        /// The expiry is in the past already.
        Expired = 110, "expired";
        /// A limit of rates.
        TooManyRequests = 111, "too many requests";
        /// The publications since the client's position are gone.
        UnrecoverablePosition = 112, "unrecoverable position";
        /// For map subscriptions.
        ConcurrentPagination = 113, "concurrent pagination";
    }
}

impl ErrorCode {
    /// Its index in [`ErrorCode::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        (self as u32 - Self::Internal as u32) as usize
    }

    /// Whether clients try the same again by themselves.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(
            self,
            Self::Internal | Self::TooManyRequests | Self::ConcurrentPagination
        )
    }
}

codes! {
    /// Why the server ends a subscription. From 2500 on, clients subscribe again.
    pub enum UnsubscribeCode(u32) {
        /// The application asked for it.
        Server = 2000, "server unsubscribe";
        /// Publications were lost on the way.
        InsufficientState = 2500, "insufficient state";
        /// The subscription's token was not refreshed.
        Expired = 2501, "subscription expired";
        /// The client drops its token and its position.
        StateInvalidated = 2502, "state invalidated";
    }
}

codes! {
    /// Why the server ends a connection. The range of the code decides what clients do.
    pub enum DisconnectCode(u16) {
        /// The client has closed. It is never sent.
        ConnectionClosed = 3000, "connection closed";
        /// The server ends.
        Shutdown = 3001, "shutdown";
        /// A fault of the server.
        ServerError = 3004, "internal server error";
        /// The connection's token was not refreshed.
        Expired = 3005, "connection expired";
        /// The token of a server-side subscription was not refreshed.
        SubscriptionExpired = 3006, "subscription expired";
        /// The client reads too slowly.
        Slow = 3008, "slow";
        /// A write failed.
        WriteError = 3009, "write error";
        /// A server-side subscription has lost publications.
        InsufficientState = 3010, "insufficient state";
        /// The application asked for a new connection.
        ForceReconnect = 3011, "force reconnect";
        /// A ping was not answered.
        NoPong = 3012, "no pong";
        /// A limit of rates.
        TooManyRequests = 3013, "too many requests";
        /// The client drops its tokens and positions.
        StateInvalidated = 3014, "state invalidated";
        /// A token that is not ours, or not this user's.
        InvalidToken = 3500, "invalid token";
        /// The client breaks the protocol.
        BadRequest = 3501, "bad request";
        /// No connect command came in time.
        Stale = 3502, "stale";
        /// The application asked for it.
        ForceDisconnect = 3503, "force disconnect";
        /// Too many connections of one user.
        ConnectionLimit = 3504, "connection limit";
        /// Too many server-side subscriptions.
        ChannelLimit = 3505, "channel limit";
        /// A payload that is not JSON, for a JSON client.
        InappropriateProtocol = 3506, "inappropriate protocol";
        /// The client lacks the right.
        PermissionDenied = 3507, "permission denied";
        /// The server does not have this feature.
        NotAvailable = 3508, "not available";
        /// A limit of errors.
        TooManyErrors = 3509, "too many errors";
    }
}

impl DisconnectCode {
    /// Whether clients stay away. Otherwise they reconnect by themselves.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        disconnect_is_terminal(self.code())
    }
}

/// Whether clients stay away after a close with this code, which may be an application's.
#[must_use]
pub const fn disconnect_is_terminal(code: u16) -> bool {
    matches!(code, 3500..=3999 | 4500..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_numbered_without_a_gap() {
        let codes: Vec<u32> = ErrorCode::ALL.iter().map(|code| code.code()).collect();
        assert_eq!(codes, (100..=113).collect::<Vec<u32>>());
        let temporary = |code: &&ErrorCode| code.is_temporary();
        let temporary: Vec<u32> = (ErrorCode::ALL.iter().filter(temporary))
            .map(|code| code.code())
            .collect();
        assert_eq!(temporary, [100, 111, 113]);
    }

    #[test]
    fn numbers_and_texts_are_those_of_the_protocol() {
        let unsubscribe: Vec<u32> = UnsubscribeCode::ALL.iter().map(|c| c.code()).collect();
        assert_eq!(unsubscribe, [2000, 2500, 2501, 2502]);
        let disconnect: Vec<u16> = DisconnectCode::ALL.iter().map(|c| c.code()).collect();
        assert_eq!(
            disconnect,
            [
                3000, 3001, 3004, 3005, 3006, 3008, 3009, 3010, 3011, 3012, 3013, 3014, 3500, 3501,
                3502, 3503, 3504, 3505, 3506, 3507, 3508, 3509
            ]
        );
        assert_eq!(ErrorCode::PermissionDenied.text(), "permission denied");
        assert_eq!(UnsubscribeCode::Server.text(), "server unsubscribe");
        assert_eq!(DisconnectCode::NoPong.text(), "no pong");
    }

    /// The rows of the page's table whose first heading this is: numbers and names.
    fn documented(heading: &str) -> Vec<(u32, &'static str)> {
        let page = include_str!("../../../../docs/protocol.md");
        let head = format!("| {heading} | name |");
        let lines = page.lines().skip_while(|line| !line.starts_with(&head));
        let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let number = cells.next().and_then(|cell| cell.parse().ok());
            (number.expect("a number"), cells.next().expect("a name"))
        })
        .collect()
    }

    #[test]
    fn the_page_names_every_code() {
        let errors: Vec<_> = ErrorCode::ALL
            .iter()
            .map(|c| (c.code(), c.text()))
            .collect();
        assert_eq!(documented("error"), errors);
        let unsubscribes: Vec<_> = (UnsubscribeCode::ALL.iter())
            .map(|c| (c.code(), c.text()))
            .collect();
        assert_eq!(documented("unsubscribe"), unsubscribes);
        let disconnects: Vec<_> = (DisconnectCode::ALL.iter())
            .map(|c| (u32::from(c.code()), c.text()))
            .collect();
        assert_eq!(documented("disconnect"), disconnects);
    }

    #[test]
    fn the_range_decides_whether_a_client_returns() {
        for code in DisconnectCode::ALL {
            assert_eq!(code.is_terminal(), code.code() >= 3500, "{code:?}");
        }
        assert!(!disconnect_is_terminal(1000) && !disconnect_is_terminal(4000));
        assert!(disconnect_is_terminal(4500) && !disconnect_is_terminal(5000));
    }
}
