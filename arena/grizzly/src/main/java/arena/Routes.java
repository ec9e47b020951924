package arena;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.glassfish.grizzly.http.server.HttpHandler;
import org.glassfish.grizzly.http.server.Request;
import org.glassfish.grizzly.http.server.Response;
import org.glassfish.grizzly.http.util.HttpStatus;

/** What is no upgrade. */
final class Routes extends HttpHandler {
    private final Crowd crowd;

    Routes(Crowd crowd) {
        this.crowd = crowd;
    }

    @Override
    public void service(Request request, Response response) throws IOException {
        switch (request.getMethod() + " " + request.getRequestURI()) {
            case "GET /stats" -> answer(response, connections(crowd.count()));
            case "POST /broadcast" -> {
                var body = body(request, response, Server.MESSAGE_BYTES_MAX);
                if (body != null) {
                    answer(response, connections(crowd.broadcast(new String(body, StandardCharsets.UTF_8))));
                }
            }
            case "POST /request" -> {
                var body = body(request, response, Server.REQUEST_BYTES_MAX);
                if (body != null) {
                    answer(response, body);
                }
            }
            default -> response.setStatus(HttpStatus.NOT_FOUND_404);
        }
    }

    /** The whole body, or null after the answer that it is too long. */
    private static byte[] body(Request request, Response response, int bytesMax) throws IOException {
        var body = request.getInputStream().readNBytes(bytesMax + 1);
        if (body.length <= bytesMax) {
            return body;
        }
        response.setStatus(HttpStatus.REQUEST_ENTITY_TOO_LARGE_413);
        response.setHeader("Connection", "close");
        return null;
    }

    private static byte[] connections(int count) {
        return ("{\"connections\": " + count + "}").getBytes(StandardCharsets.US_ASCII);
    }

    private static void answer(Response response, byte[] body) throws IOException {
        response.setContentLength(body.length);
        response.getOutputStream().write(body);
    }
}
