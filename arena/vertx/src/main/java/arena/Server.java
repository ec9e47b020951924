package arena;

import io.vertx.core.Context;
import io.vertx.core.DeploymentOptions;
import io.vertx.core.Future;
import io.vertx.core.Promise;
import io.vertx.core.VerticleBase;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpMethod;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.http.HttpServerRequest;
import io.vertx.core.http.ServerWebSocket;
import io.vertx.core.net.OpenSSLEngineOptions;
import io.vertx.core.net.PemKeyCertOptions;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * Vert.x on native epoll: a verticle for each of two event loops, sharing the port; each pushes to its own sockets. TLS is
 * BoringSSL, by netty-tcnative.
 */
public final class Server extends VerticleBase {
    private static final int MESSAGE_BYTES_MAX = 131_072;
    private static final int REQUEST_BYTES_MAX = 4_096;
    private static final int EVENT_LOOPS = 2;
    private static final int BACKLOG = 4_096;
    private static final List<Server> VERTICLES = new CopyOnWriteArrayList<>();
    private static long ticks;

    private final boolean echo = setting("MODE", "push").equals("echo");
    /** Touched by this verticle's event loop alone. */
    private final Set<ServerWebSocket> sockets = new HashSet<>();
    private Context loop;

    public static void main(String[] arguments) {
        var vertx = Vertx.vertx(new VertxOptions().setPreferNativeTransport(true).setEventLoopPoolSize(EVENT_LOOPS));
        var everyMs = Long.parseLong(setting("PUSH_EVERY_MS", "0"));
        vertx.deployVerticle(Server::new, new DeploymentOptions().setInstances(EVENT_LOOPS)).onComplete(started -> {
            if (started.failed()) {
                System.err.println(started.cause());
                System.exit(1);
            }
            if (everyMs > 0) {
                vertx.setPeriodic(everyMs, timer -> broadcast("tick " + ++ticks));
            }
        });
    }

    @Override
    public Future<?> start() {
        loop = context;
        VERTICLES.add(this);
        var options = new HttpServerOptions()
                .setHost(setting("HOST", "127.0.0.1"))
                .setPort(Integer.parseInt(setting("PORT", "9000")))
                .setAcceptBacklog(BACKLOG)
                .setTcpNoDelay(true)
                .setPerMessageWebSocketCompressionSupported(false)
                .setPerFrameWebSocketCompressionSupported(false)
                .setMaxWebSocketFrameSize(MESSAGE_BYTES_MAX)
                .setMaxWebSocketMessageSize(MESSAGE_BYTES_MAX);
        var certificate = setting("TLS_CERTIFICATE", "");
        if (!certificate.isEmpty()) {
            options.setSsl(true)
                    .setSslEngineOptions(new OpenSSLEngineOptions())
                    .setEnabledSecureTransportProtocols(Set.of("TLSv1.3"))
                    .addEnabledCipherSuite("TLS_AES_128_GCM_SHA256")
                    .setKeyCertOptions(new PemKeyCertOptions()
                            .setCertPath(certificate)
                            .setKeyPath(setting("TLS_KEY", "")));
        }
        return vertx.createHttpServer(options)
                .webSocketHandshakeHandler(handshake -> {
                    if (handshake.path().equals("/")) {
                        handshake.accept();
                    } else {
                        handshake.reject(404);
                    }
                })
                .webSocketHandler(this::open)
                .requestHandler(this::route)
                .listen();
    }

    private void open(ServerWebSocket socket) {
        sockets.add(socket);
        socket.closeHandler(closed -> sockets.remove(socket));
        // A protocol error or a reset; the close handler is called as well.
        socket.exceptionHandler(error -> {});
        if (echo) {
            socket.textMessageHandler(socket::writeTextMessage);
            socket.binaryMessageHandler(socket::writeBinaryMessage);
        }
    }

    private void route(HttpServerRequest request) {
        switch (request.method().name() + " " + request.path()) {
            case "GET /stats" -> answer(request, everywhere(verticle -> {}));
            case "POST /broadcast" -> withBody(request, MESSAGE_BYTES_MAX, body -> answer(request, broadcast(body.toString())));
            case "POST /request" -> withBody(request, REQUEST_BYTES_MAX, body -> request.response().end(body));
            default -> request.response().setStatusCode(404).end();
        }
    }

    private static Future<Integer> broadcast(String payload) {
        return everywhere(verticle -> verticle.sockets.forEach(socket -> socket.writeTextMessage(payload)));
    }

    /** Does something on every verticle's own loop; the result is the number of sockets in all. */
    private static Future<Integer> everywhere(java.util.function.Consumer<Server> action) {
        var counts = VERTICLES.stream().map(verticle -> {
            Promise<Integer> count = Promise.promise();
            verticle.loop.runOnContext(now -> {
                action.accept(verticle);
                count.complete(verticle.sockets.size());
            });
            return count.future();
        }).toList();
        return Future.all(counts).map(all -> all.<Integer>list().stream().mapToInt(Integer::intValue).sum());
    }

    private static void withBody(HttpServerRequest request, int bytesMax, java.util.function.Consumer<Buffer> use) {
        var body = Buffer.buffer();
        request.handler(part -> {
            if (body.length() + part.length() > bytesMax) {
                request.handler(rest -> {});
                request.endHandler(end -> {});
                request.response().putHeader("connection", "close").setStatusCode(413).end();
            } else {
                body.appendBuffer(part);
            }
        });
        request.endHandler(end -> use.accept(body));
    }

    private static void answer(HttpServerRequest request, Future<Integer> connections) {
        connections.onSuccess(count -> request.response().end("{\"connections\": " + count + "}"));
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
