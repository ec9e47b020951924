package arena;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;
import org.eclipse.jetty.http.HttpStatus;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.Promise;
import org.eclipse.jetty.util.thread.Invocable.InvocationType;

/** What is no upgrade. Bodies are read without a thread that waits for them. */
final class Routes extends Handler.Abstract.NonBlocking {
    private final Server server;

    Routes(Server server) {
        this.server = server;
    }

    @Override
    public boolean handle(Request request, Response response, Callback callback) {
        switch (request.getMethod() + " " + Request.getPathInContext(request)) {
            case "GET /stats" -> answer(response, callback, server.sessions.size());
            case "POST /broadcast" -> withBody(request, response, callback, Server.MESSAGE_BYTES_MAX, body ->
                    answer(response, callback, server.broadcast(new String(body, StandardCharsets.UTF_8))));
            case "POST /request" -> withBody(request, response, callback, Server.REQUEST_BYTES_MAX, body ->
                    response.write(true, ByteBuffer.wrap(body), callback));
            default -> Response.writeError(request, response, callback, HttpStatus.NOT_FOUND_404);
        }
        return true;
    }

    private static void withBody(
            Request request, Response response, Callback callback, int bytesMax, Consumer<byte[]> use) {
        if (request.getLength() > bytesMax) {
            Response.writeError(request, response, callback, HttpStatus.PAYLOAD_TOO_LARGE_413);
            return;
        }
        Content.Source.asByteArrayAsync(
                request, bytesMax, Promise.Invocable.from(InvocationType.NON_BLOCKING, use, error ->
                        Response.writeError(request, response, callback, HttpStatus.PAYLOAD_TOO_LARGE_413)));
    }

    private static void answer(Response response, Callback callback, int connections) {
        Content.Sink.write(response, true, "{\"connections\": " + connections + "}", callback);
    }
}
