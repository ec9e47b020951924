package arena;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.List;
import org.eclipse.jetty.server.ConnectionFactory;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.SslConnectionFactory;
import org.eclipse.jetty.util.ssl.SslContextFactory;
import org.eclipse.jetty.util.thread.QueuedThreadPool;
import org.eclipse.jetty.websocket.api.Callback;
import org.eclipse.jetty.websocket.api.Session;
import org.eclipse.jetty.websocket.server.ServerWebSocketContainer;
import org.eclipse.jetty.websocket.server.WebSocketUpgradeHandler;

/** Jetty: one acceptor, two selectors, and its own WebSocket API. TLS is the JDK's. */
public final class Server {
    static final int MESSAGE_BYTES_MAX = 131_072;
    static final int REQUEST_BYTES_MAX = 4_096;
    private static final int SELECTORS = 2;
    private static final int THREADS_MAX = 16;
    private static final int BACKLOG = 4_096;

    final Set<Session> sessions = ConcurrentHashMap.newKeySet();
    final boolean echo = setting("MODE", "push").equals("echo");
    private long ticks;

    private Server() {}

    public static void main(String[] arguments) throws Exception {
        var everyMs = Long.parseLong(setting("PUSH_EVERY_MS", "0"));
        var crowd = new Server();
        if (everyMs > 0) {
            Executors.newSingleThreadScheduledExecutor()
                    .scheduleAtFixedRate(crowd::tick, everyMs, everyMs, TimeUnit.MILLISECONDS);
        }
        crowd.listen(setting("HOST", "127.0.0.1"), Integer.parseInt(setting("PORT", "9000")));
    }

    private void listen(String host, int port) throws Exception {
        var server = new org.eclipse.jetty.server.Server(new QueuedThreadPool(THREADS_MAX));
        var configuration = new HttpConfiguration();
        configuration.setSendServerVersion(false);
        configuration.setSendDateHeader(false);
        var connector = new ServerConnector(server, 1, SELECTORS, factories(new HttpConnectionFactory(configuration)));
        connector.setHost(host);
        connector.setPort(port);
        connector.setIdleTimeout(0);
        connector.setAcceptQueueSize(BACKLOG);
        server.addConnector(connector);
        var sockets = WebSocketUpgradeHandler.from(server, this::configure);
        sockets.setHandler(new Routes(this));
        server.setHandler(sockets);
        server.start();
        server.join();
    }

    /** TLS 1.3 below HTTP if there is a certificate. */
    private static ConnectionFactory[] factories(HttpConnectionFactory http) throws Exception {
        var certificate = setting("TLS_CERTIFICATE", "");
        if (certificate.isEmpty()) {
            return new ConnectionFactory[] {http};
        }
        var tls = new SslContextFactory.Server();
        tls.setKeyStore(Pem.store(Path.of(certificate), Path.of(setting("TLS_KEY", ""))));
        tls.setKeyStorePassword(Pem.PASSWORD);
        tls.setIncludeProtocols("TLSv1.3");
        tls.setIncludeCipherSuites("TLS_AES_128_GCM_SHA256");
        return new ConnectionFactory[] {new SslConnectionFactory(tls, http.getProtocol()), http};
    }

    private void configure(ServerWebSocketContainer container) {
        container.setIdleTimeout(Duration.ZERO);
        container.setMaxTextMessageSize(MESSAGE_BYTES_MAX);
        container.setMaxBinaryMessageSize(MESSAGE_BYTES_MAX);
        container.setMaxFrameSize(MESSAGE_BYTES_MAX);
        container.setInputBufferSize(1024);
        container.setOutputBufferSize(1024);
        container.addMapping("/", (request, response, callback) -> {
            // It would negotiate permessage-deflate.
            response.setExtensions(List.of());
            return new Endpoint(this);
        });
    }

    synchronized int broadcast(String payload) {
        var handed = 0;
        for (var session : sessions) {
            session.sendText(payload, Callback.NOOP);
            handed++;
        }
        return handed;
    }

    private void tick() {
        broadcast("tick " + ++ticks);
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
