// java.net.http.HttpClient against the server over TLS: run by ../python/test_java.py as `java Clients.java AUTHORITY ADDRESS`.
// Its last line says what it has done. Whatever goes wrong ends it with a stack trace.

import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.WebSocket;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;

public class Clients {
    static final Duration PATIENCE = Duration.ofSeconds(30);

    public static void main(String[] arguments) throws Exception {
        SSLContext context = trusting(arguments[0]);
        for (String version : new String[] {"TLSv1.3", "TLSv1.2"}) {
            // HTTP/2 is what it prefers, and has to do without.
            for (HttpClient.Version http : HttpClient.Version.values()) {
                HttpClient client = HttpClient.newBuilder().sslContext(context).version(http).connectTimeout(PATIENCE)
                    .sslParameters(new SSLParameters(null, new String[] {version})).build();
                use(client, arguments[1], version + "-" + http);
            }
        }
        System.out.println("done with 2 versions of TLS and " + HttpClient.Version.values().length + " of HTTP");
    }

    static void use(HttpClient client, String address, String channel) throws Exception {
        for (int number = 0; number < 20; number++) {
            String body = "{\"channel\": \"" + channel + "\", \"data\": " + number + "}";
            HttpResponse<String> published = client.send(
                request(address, "/api/publish").POST(HttpRequest.BodyPublishers.ofString(body)).build(), text());
            check(published.statusCode() == 200 && published.version() == HttpClient.Version.HTTP_1_1, published.body());
            check(published.sslSession().get().getProtocol().equals(channel.split("-")[0]), channel);
        }
        HttpResponse<String> read = client.send(request(address, "/v1/stream/" + channel + "?offset=-1").build(), text());
        check(read.body().startsWith("[0,1,2,"), read.body());

        Listener listener = new Listener();
        WebSocket socket = client.newWebSocketBuilder().connectTimeout(PATIENCE)
            .buildAsync(URI.create("wss://" + address + "/echo"), listener).get(30, TimeUnit.SECONDS);
        for (int length : new int[] {0, 1, 125, 126, 16_384, 16_385, 65_536, 1_000_000}) {
            String sent = "x".repeat(length);
            socket.sendText(sent, true).get(30, TimeUnit.SECONDS);
            check(sent.equals(listener.messages.poll(30, TimeUnit.SECONDS)), length + " characters");
        }
        socket.sendClose(4000, "done").get(30, TimeUnit.SECONDS);
        check(listener.closed.get(30, TimeUnit.SECONDS) == 4000, "the close code");
    }

    static class Listener implements WebSocket.Listener {
        final LinkedBlockingQueue<String> messages = new LinkedBlockingQueue<>();
        final CompletableFuture<Integer> closed = new CompletableFuture<>();
        final StringBuilder begun = new StringBuilder();

        public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean isLast) {
            begun.append(data);
            if (isLast) {
                messages.add(begun.toString());
                begun.setLength(0);
            }
            socket.request(1);
            return null;
        }

        public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
            closed.complete(code);
            return null;
        }

        public void onError(WebSocket socket, Throwable error) {
            closed.completeExceptionally(error);
        }
    }

    static HttpRequest.Builder request(String address, String path) {
        return HttpRequest.newBuilder(URI.create("https://" + address + path)).timeout(PATIENCE);
    }

    static HttpResponse.BodyHandler<String> text() {
        return HttpResponse.BodyHandlers.ofString();
    }

    static void check(boolean isRight, String what) {
        if (!isRight) throw new AssertionError(what);
    }

    static SSLContext trusting(String file) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (FileInputStream authority = new FileInputStream(file)) {
            store.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(authority));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }
}
