package arena

import java.util.concurrent.ConcurrentHashMap
import org.apache.pekko.http.scaladsl.model.ws.{ BinaryMessage, Message, TextMessage }
import org.apache.pekko.stream.{ BoundedSourceQueue, Materializer }
import org.apache.pekko.stream.scaladsl.{ Flow, Keep, Sink, Source }
import org.apache.pekko.util.ByteString
import scala.concurrent.{ ExecutionContext, Future }

/** All open WebSockets, each a stream that ends in a queue of pushes. */
final class Crowd(echo: Boolean)(implicit materializer: Materializer, context: ExecutionContext) {
  import Crowd._

  private val open = ConcurrentHashMap.newKeySet[BoundedSourceQueue[Message]]()
  private var ticks = 0L

  def count: Int = open.size

  /** Offered to all; a connection so far behind that its queue is full is closed. */
  def broadcast(text: String): Int = synchronized {
    val message = TextMessage.Strict(text)
    var handed = 0
    open.forEach { queue =>
      if (queue.offer(message).isEnqueued) handed += 1 else queue.complete()
    }
    handed
  }

  def tick(): Unit = {
    ticks += 1
    broadcast(s"tick $ticks")
  }

  /** The stream of one connection; made anew for each. */
  def conversation: Flow[Message, Message, Any] = {
    val pushes = Source.queue[Message](BehindMax)
    val talk =
      if (echo)
        Flow[Message].mapAsync(1)(whole).mergeMat(pushes, eagerComplete = true)(Keep.right)
      else
        // Coupled: what the client says ends nothing, its leaving ends the queue.
        Flow.fromSinkAndSourceCoupledMat(Flow[Message].mapAsync(1)(whole).to(Sink.ignore), pushes)(Keep.right)
    talk
      .mapMaterializedValue { queue =>
        open.add(queue)
        queue
      }
      .watchTermination() { (queue, ended) => ended.onComplete(_ => open.remove(queue)) }
  }

  private def whole(message: Message): Future[Message] = message match {
    case text: TextMessage.Strict     => Future.successful(text)
    case binary: BinaryMessage.Strict => Future.successful(binary)
    case text: TextMessage =>
      text.textStream.limitWeighted(MessageBytesMax)(ByteString(_).length.toLong).runFold("")(_ + _).map(TextMessage.Strict(_))
    case binary: BinaryMessage =>
      binary.dataStream
        .limitWeighted(MessageBytesMax)(_.length.toLong)
        .runFold(ByteString.empty)(_ ++ _)
        .map(BinaryMessage.Strict(_))
  }
}

object Crowd {
  val MessageBytesMax = 131072L

  /** Messages a connection may be behind. */
  val BehindMax = 256
}
