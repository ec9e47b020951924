package arena

import akka.actor.ActorRef
import akka.util.ByteString
import spray.can.server.UHttp
import spray.can.websocket
import spray.can.websocket.FrameCommandFailed
import spray.can.websocket.frame.{ BinaryFrame, TextFrame }
import spray.http.{ HttpRequest, HttpResponse, StatusCodes, Uri }
import spray.routing.HttpServiceActor

/** One connection: HTTP until it is upgraded. */
final class Worker(val serverConnection: ActorRef, crowd: Crowd, echo: Boolean)
    extends HttpServiceActor
    with websocket.WebSocketServerWorker {

  override def receive: Receive = handshaking orElse businessLogicNoUpgrade orElse closeLogic

  /** spray-websocket's own, but for the limit of a frame and of a message, which is 2 GiB there. */
  override def handshaking: Receive = {
    case websocket.HandshakeRequest(accepted: websocket.HandshakeContext)
        if accepted.request.uri.path == Uri.Path.SingleSlash =>
      sender() ! UHttp.UpgradeServer(
        websocket.pipelineStage(self, accepted, Server.MessageBytesMax),
        accepted.response)
    case websocket.HandshakeRequest(failure: websocket.HandshakeFailure) => sender() ! failure.response
    case UHttp.Upgraded =>
      context.become(businessLogic orElse closeLogic)
      self ! websocket.UpgradedToWebSocket
  }

  def businessLogic: Receive = {
    case websocket.UpgradedToWebSocket => crowd.add(self)
    case Push(frame)                   => send(frame)
    case frame @ (_: TextFrame | _: BinaryFrame) =>
      if (echo) sender() ! frame
    case _: FrameCommandFailed => context.stop(self)
    case _: HttpRequest        => context.stop(self)
  }

  private def businessLogicNoUpgrade: Receive = runRoute(
    (get & path("stats")) {
      complete(connections(crowd.count))
    } ~ (post & path("broadcast") & entity(as[Array[Byte]])) { body =>
      complete(connections(crowd.broadcast(ByteString(body))))
    } ~ (post & path("request") & entity(as[Array[Byte]])) { body =>
      complete(
        if (body.length > Server.RequestBytesMax) HttpResponse(StatusCodes.RequestEntityTooLarge)
        else HttpResponse(entity = body))
    })

  private def connections(count: Int): HttpResponse = HttpResponse(entity = s"""{"connections": $count}""")

  override def postStop(): Unit = {
    crowd.remove(self)
    super.postStop()
  }
}
