package arena

import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.scaladsl.Http
import org.apache.pekko.http.scaladsl.model.{ HttpResponse, StatusCodes }
import org.apache.pekko.http.scaladsl.server.Directives._
import org.apache.pekko.http.scaladsl.server.Route
import org.apache.pekko.util.ByteString
import scala.concurrent.ExecutionContext
import scala.concurrent.duration._

/** Pekko HTTP: Spray's living successor, a stream for every connection. */
object Server {
  private val RequestBytesMax = 4096L

  def main(arguments: Array[String]): Unit = {
    implicit val system: ActorSystem = ActorSystem("arena")
    implicit val context: ExecutionContext = system.dispatcher
    val crowd = new Crowd(setting("MODE", "push") == "echo")
    val every = setting("PUSH_EVERY_MS", "0").toInt.millis
    if (every > Duration.Zero) system.scheduler.scheduleAtFixedRate(every, every)(() => crowd.tick())
    Http()
      .newServerAt(setting("HOST", "127.0.0.1"), setting("PORT", "9000").toInt)
      .bind(routes(crowd))
      .failed
      .foreach { error =>
        Console.err.println(error.getMessage)
        sys.exit(1)
      }
  }

  private def routes(crowd: Crowd): Route = Route.seal(
    concat(
      pathSingleSlash(handleWebSocketMessages(crowd.conversation)),
      (get & path("stats"))(complete(connections(crowd.count))),
      (post & path("broadcast") & entity(as[ByteString]))(body =>
        complete(connections(crowd.broadcast(body.utf8String)))),
      (post & path("request") & withSizeLimit(RequestBytesMax) & entity(as[ByteString]))(body =>
        complete(HttpResponse(StatusCodes.OK, entity = body)))))

  private def connections(count: Int): HttpResponse = HttpResponse(entity = s"""{"connections": $count}""")

  private def setting(name: String, otherwise: String): String = sys.env.getOrElse(name, otherwise)
}
