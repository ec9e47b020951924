package arena

import akka.actor.{ Actor, ActorRef, ActorSystem, Props }
import akka.io.IO
import akka.util.ByteString
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong
import scala.collection.JavaConverters._
import scala.concurrent.duration._
import spray.can.Http
import spray.can.server.UHttp
import spray.can.websocket.frame.TextFrame

/** Spray with spray-websocket, as it was: an actor for every connection. */
object Server {
  val MessageBytesMax = 131072
  val RequestBytesMax = 4096
  private val Backlog = 4096

  def main(arguments: Array[String]): Unit = {
    implicit val system = ActorSystem("arena")
    import system.dispatcher
    val crowd = new Crowd
    val echo = setting("MODE", "push") == "echo"
    val every = setting("PUSH_EVERY_MS", "0").toInt.millis
    if (every > Duration.Zero) system.scheduler.schedule(every, every)(crowd.tick())
    val listener = system.actorOf(Props(new Listener(crowd, echo)))
    IO(UHttp).tell(
      Http.Bind(listener, setting("HOST", "127.0.0.1"), setting("PORT", "9000").toInt, Backlog),
      listener)
  }

  private def setting(name: String, otherwise: String): String = sys.env.getOrElse(name, otherwise)
}

/** Gives every connection its actor. */
final class Listener(crowd: Crowd, echo: Boolean) extends Actor {
  def receive: Receive = {
    case Http.Connected(_, _) =>
      val connection = sender()
      connection ! Http.Register(context.actorOf(Props(new Worker(connection, crowd, echo))))
    case Http.CommandFailed(bind: Http.Bind) =>
      Console.err.println(s"cannot listen on ${bind.endpoint}")
      sys.exit(1)
  }
}

/** The actors of all open WebSockets. */
final class Crowd {
  private val open = ConcurrentHashMap.newKeySet[ActorRef]()
  private val ticks = new AtomicLong

  def add(worker: ActorRef): Unit = open.add(worker)
  def remove(worker: ActorRef): Unit = open.remove(worker)
  def count: Int = open.size

  /** UTF-8, made a frame once for all. */
  def broadcast(text: ByteString): Int = synchronized {
    val push = Push(TextFrame(text))
    val workers = open.asScala
    var handed = 0
    workers.foreach { worker =>
      worker ! push
      handed += 1
    }
    handed
  }

  def tick(): Unit = broadcast(ByteString("tick " + ticks.incrementAndGet()))
}

final case class Push(frame: TextFrame)
