//! From the options to a run.

use super::values::{Body, CloseName, Payload, shown};
use super::{Arguments, CONNECTIONS_DEFAULT, What};
use myriad_swarm::{
    Arrival, ClientPublish, Config, Destination, Echo, Ending, Filler, LiveStyle, PollPosition,
    Publish, PublishBody, Requests, Target, Tls,
};

impl Arguments {
    fn live_style(&self) -> LiveStyle {
        if self.no_tui {
            return LiveStyle::Plain;
        }
        self.live.into()
    }

    /// A scenario's run, with what the command line says about this machine, the run's size, and its outputs.
    pub(super) fn over(self, mut config: Config) -> Config {
        let live = self.live_style();
        self.machine.over(&mut config);
        config.live = live;
        config.json = self.json.map(Destination::from);
        config.hgrm = self.hgrm.map(Destination::from);
        config.reporting = self.reporting.into();
        config.thresholds.extend(self.threshold);
        config.abort_on_fail = self.abort_on_fail.or(config.abort_on_fail);
        config
    }

    /// The URLs of the command line.
    fn targets(&self) -> Vec<Target> {
        let targets = self.what.iter().filter_map(|what| match what {
            What::Target(target) => Some(target.clone()),
            What::Scenario(_) => None,
        });
        targets.collect()
    }

    /// Messages that the server sends back, where they are wanted.
    fn wanted_echo(&self) -> Option<Echo> {
        let mut echo = Echo::new(self.echo?);
        echo.warmup = self.warmup.unwrap_or(echo.warmup);
        if let Some(size) = self.echo_size {
            echo.payload_bytes = usize::try_from(size).unwrap_or(usize::MAX);
        }
        Some(echo)
    }

    /// What clients publish, where they do.
    fn wanted_client_publish(&self) -> Option<ClientPublish> {
        let mut publish = ClientPublish::new(self.client_publish?);
        publish.warmup = self.warmup.unwrap_or(publish.warmup);
        if let Some(size) = self.client_publish_size {
            publish.payload_bytes = usize::try_from(size).unwrap_or(usize::MAX);
        }
        Some(publish)
    }

    /// Requests beside the crowd, where they are wanted.
    fn wanted_requests(&self) -> Option<Requests> {
        let mut requests = Requests::new(self.request.clone(), self.request_rate?);
        requests.connections = self.request_connections.unwrap_or(requests.connections);
        requests.warmup = self.warmup.unwrap_or(requests.warmup);
        Some(requests)
    }

    /// Pushes, where they are wanted.
    fn wanted_publish(&self) -> Option<Publish> {
        let mut endpoints = self.publish.iter().cloned();
        let mut publish = Publish::new(endpoints.next()?, self.every);
        publish.endpoints.extend(endpoints);
        publish.is_spread = self.spread;
        publish.pushes = self.pushes;
        publish.channels.clone_from(&self.publish_channel);
        publish.api_key.clone_from(&self.api_key);
        publish.content_type.clone_from(&self.publish_type);
        publish.body = match self.publish_body {
            Body::Api => PublishBody::Api,
            Body::Plain => PublishBody::Plain,
            Body::Stream => PublishBody::Stream,
        };
        publish.filler = match self.payload {
            Payload::Dots => Filler::Dots,
            Payload::Json => Filler::Json,
        };
        publish.warmup = self.warmup.unwrap_or(publish.warmup);
        if let Some(size) = self.payload_size {
            publish.payload_bytes = usize::try_from(size).unwrap_or(usize::MAX);
        }
        Some(publish)
    }

    /// How clients arrive.
    fn wanted_arrival(&self) -> Arrival {
        let ways = [
            self.connect_rate.map(Arrival::Rate),
            self.ramp.map(Arrival::Ramp),
            (!self.stage.is_empty()).then(|| Arrival::Stages(self.stage.clone())),
            self.at_once.then_some(Arrival::AtOnce),
        ];
        ways.into_iter().flatten().next().unwrap_or_default()
    }

    pub(super) fn into_config(self) -> Config {
        let live = self.live_style();
        let (echo, requests) = (self.wanted_echo(), self.wanted_requests());
        let publish = self.wanted_publish();
        let client_publish = self.wanted_client_publish();
        let arrival = self.wanted_arrival();
        let connections = self.connections.or(arrival.count());
        let connections = connections.unwrap_or(CONNECTIONS_DEFAULT);
        let mut config = Config::new(self.targets(), connections);
        config.protocol = self.protocol;
        config.tokens = shown(self.token, self.tokens);
        config.channels = self.channel;
        config.channel_count = self.channels;
        config.echo = echo;
        config.client_publish = client_publish;
        config.recover_from = self.recover_from;
        config.requests = requests;
        config.arrival = arrival;
        self.machine.over(&mut config);
        config.tls = Tls {
            ca: self.ca,
            is_insecure: self.insecure,
            is_resuming: self.tls_resume,
        };
        config.heartbeat = self.heartbeat;
        config.churn_per_s = self.churn;
        config.comeback.when_lost = self.reconnect;
        config.comeback.backoff = self.backoff.unwrap_or(config.comeback.backoff);
        config.comeback.attempts = self.reconnect_attempts;
        config.comeback.recovers = !self.reconnect_fresh;
        config.incidents = [self.storm, self.stall, self.vanish].concat();
        config.headers = self.header;
        config.compression = self.compression;
        config.request_body = self.request_body;
        config.poll_position = PollPosition::parse(&self.poll_position);
        config.expect_held = self.expect_held;
        config.json = self.json.map(Destination::from);
        config.hgrm = self.hgrm.map(Destination::from);
        config.reporting = self.reporting.into();
        config.thresholds = self.threshold;
        config.abort_on_fail = self.abort_on_fail;
        config.ending = match self.close {
            CloseName::Reset => Ending::Reset,
            CloseName::Orderly => Ending::Orderly,
        };
        config.live = live;
        if let Some(count) = self.connecting_max {
            config.connecting_max = u32::try_from(count).unwrap_or(u32::MAX);
        }
        config.connect_timeout = self.connect_timeout.unwrap_or(config.connect_timeout);
        config.handshake_timeout = self.handshake_timeout.unwrap_or(config.handshake_timeout);
        config.retries = self.retries.unwrap_or(config.retries);
        config.settle = self.settle.unwrap_or(config.settle);
        config.publish = publish;
        config
    }
}
