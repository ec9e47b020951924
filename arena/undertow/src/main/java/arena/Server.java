package arena;

import io.undertow.Handlers;
import io.undertow.Undertow;
import io.undertow.UndertowOptions;
import io.undertow.io.Receiver;
import io.undertow.io.Receiver.RequestToLargeException;
import io.undertow.server.HttpHandler;
import io.undertow.server.HttpServerExchange;
import io.undertow.server.handlers.ResponseCodeHandler;
import io.undertow.util.Methods;
import io.undertow.util.StatusCodes;
import io.undertow.websockets.WebSocketProtocolHandshakeHandler;
import io.undertow.websockets.core.AbstractReceiveListener;
import io.undertow.websockets.core.BufferedBinaryMessage;
import io.undertow.websockets.core.BufferedTextMessage;
import io.undertow.websockets.core.WebSocketChannel;
import io.undertow.websockets.core.WebSockets;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import org.xnio.Options;
import org.xnio.Sequence;

/** Undertow: everything on its two I/O threads, nothing blocks and nothing needs a worker. TLS is the JDK's. */
public final class Server {
    private static final int MESSAGE_BYTES_MAX = 131_072;
    private static final int REQUEST_BYTES_MAX = 4_096;
    private static final int IO_THREADS = 2;
    private static final int BACKLOG = 4_096;

    private final boolean echo = setting("MODE", "push").equals("echo");
    private final WebSocketProtocolHandshakeHandler sockets =
            Handlers.websocket((exchange, channel) -> open(channel), new ResponseCodeHandler(StatusCodes.UPGRADE_REQUIRED));
    private long ticks;

    public static void main(String[] arguments) throws GeneralSecurityException, IOException {
        new Server().listen(setting("HOST", "127.0.0.1"), Integer.parseInt(setting("PORT", "9000")));
    }

    private void listen(String host, int port) throws GeneralSecurityException, IOException {
        var everyMs = Long.parseLong(setting("PUSH_EVERY_MS", "0"));
        if (everyMs > 0) {
            Executors.newSingleThreadScheduledExecutor()
                    .scheduleAtFixedRate(this::tick, everyMs, everyMs, TimeUnit.MILLISECONDS);
        }
        var tls = tls();
        var builder = Undertow.builder();
        var undertow = (tls == null ? builder.addHttpListener(port, host) : builder.addHttpsListener(port, host, tls))
                .setSocketOption(Options.SSL_ENABLED_PROTOCOLS, Sequence.of("TLSv1.3"))
                .setSocketOption(Options.SSL_ENABLED_CIPHER_SUITES, Sequence.of("TLS_AES_128_GCM_SHA256"))
                .setIoThreads(IO_THREADS)
                .setWorkerThreads(1)
                .setSocketOption(Options.BACKLOG, BACKLOG)
                .setSocketOption(Options.TCP_NODELAY, true)
                // Bodies: past it the receivers below answer 413 themselves.
                .setServerOption(UndertowOptions.MAX_BUFFERED_REQUEST_SIZE, MESSAGE_BYTES_MAX)
                .setHandler(Handlers.path()
                        .addExactPath("/", sockets)
                        .addExactPath("/stats", method(Methods.GET.toString(), exchange -> answerConnections(exchange, sockets.getPeerConnections().size())))
                        .addExactPath("/broadcast", method(Methods.POST.toString(), withBody(MESSAGE_BYTES_MAX, this::broadcast)))
                        .addExactPath("/request", method(Methods.POST.toString(), withBody(REQUEST_BYTES_MAX, (exchange, body) -> exchange.getResponseSender().send(ByteBuffer.wrap(body))))))
                .build();
        undertow.start();
    }

    /** None without a certificate. */
    private static SSLContext tls() throws GeneralSecurityException, IOException {
        var certificate = setting("TLS_CERTIFICATE", "");
        if (certificate.isEmpty()) {
            return null;
        }
        var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(Pem.store(Path.of(certificate), Path.of(setting("TLS_KEY", ""))), Pem.PASSWORD.toCharArray());
        var context = SSLContext.getInstance("TLSv1.3");
        context.init(keys.getKeyManagers(), null, null);
        return context;
    }

    private void open(WebSocketChannel channel) {
        channel.getReceiveSetter().set(new AbstractReceiveListener() {
            @Override
            protected void onFullTextMessage(WebSocketChannel channel, BufferedTextMessage message) {
                if (echo) {
                    WebSockets.sendText(message.getData(), channel, null);
                }
            }

            @Override
            protected void onFullBinaryMessage(WebSocketChannel channel, BufferedBinaryMessage message) {
                var data = message.getData();
                if (echo) {
                    WebSockets.sendBinary(WebSockets.mergeBuffers(data.getResource()), channel, null);
                }
                data.free();
            }

            @Override
            protected long getMaxTextBufferSize() {
                return MESSAGE_BYTES_MAX;
            }

            @Override
            protected long getMaxBinaryBufferSize() {
                return MESSAGE_BYTES_MAX;
            }
        });
        channel.resumeReceives();
    }

    private synchronized int broadcast(byte[] payload) {
        var shared = ByteBuffer.wrap(payload);
        var handed = 0;
        for (var channel : sockets.getPeerConnections()) {
            WebSockets.sendText(shared.duplicate(), channel, null);
            handed++;
        }
        return handed;
    }

    private void broadcast(HttpServerExchange exchange, byte[] payload) {
        answerConnections(exchange, broadcast(payload));
    }

    private void tick() {
        broadcast(("tick " + ++ticks).getBytes(StandardCharsets.US_ASCII));
    }

    private static HttpHandler method(String wanted, HttpHandler next) {
        return exchange -> {
            if (exchange.getRequestMethod().equalToString(wanted)) {
                next.handleRequest(exchange);
            } else {
                exchange.setStatusCode(StatusCodes.NOT_FOUND);
            }
        };
    }

    private static HttpHandler withBody(int bytesMax, Receiver.FullBytesCallback use) {
        return exchange -> {
            var receiver = exchange.getRequestReceiver();
            receiver.setMaxBufferSize(bytesMax);
            receiver.receiveFullBytes(use, (failed, error) -> {
                var tooLarge = error instanceof RequestToLargeException;
                failed.setPersistent(false)
                        .setStatusCode(tooLarge ? StatusCodes.REQUEST_ENTITY_TOO_LARGE : StatusCodes.BAD_REQUEST)
                        .endExchange();
            });
        };
    }

    private static void answerConnections(HttpServerExchange exchange, int count) {
        exchange.getResponseSender().send("{\"connections\": " + count + "}");
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
