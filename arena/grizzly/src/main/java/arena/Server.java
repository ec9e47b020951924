package arena;

import java.io.IOException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.glassfish.grizzly.http.server.HttpServer;
import org.glassfish.grizzly.http.server.NetworkListener;
import org.glassfish.grizzly.strategies.SameThreadIOStrategy;
import org.glassfish.grizzly.websockets.WebSocketEngine;

/** Grizzly: two selectors that do all the work themselves, since nothing here blocks. */
public final class Server {
    static final int MESSAGE_BYTES_MAX = 131_072;
    static final int REQUEST_BYTES_MAX = 4_096;
    private static final int SELECTORS = 2;
    private static final int BACKLOG = 4_096;

    private Server() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Logger.getLogger("org.glassfish.grizzly").setLevel(Level.WARNING);
        var crowd = new Crowd(setting("MODE", "push").equals("echo"));
        WebSocketEngine.getEngine().register("", "/", crowd);
        listen(crowd).start();
        var everyMs = Long.parseLong(setting("PUSH_EVERY_MS", "0"));
        if (everyMs > 0) {
            Executors.newSingleThreadScheduledExecutor()
                    .scheduleAtFixedRate(crowd::tick, everyMs, everyMs, TimeUnit.MILLISECONDS);
        }
        Thread.currentThread().join();
    }

    private static HttpServer listen(Crowd crowd) {
        var listener = new NetworkListener(
                "arena", setting("HOST", "127.0.0.1"), Integer.parseInt(setting("PORT", "9000")));
        var transport = listener.getTransport();
        transport.setIOStrategy(SameThreadIOStrategy.getInstance());
        transport.setSelectorRunnersCount(SELECTORS);
        transport.setServerConnectionBackLog(BACKLOG);
        transport.setTcpNoDelay(true);
        listener.registerAddOn(new BoundedFrames());
        var server = new HttpServer();
        server.addListener(listener);
        server.getServerConfiguration().addHttpHandler(new Routes(crowd), "/");
        return server;
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
