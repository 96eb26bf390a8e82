"""Dispatch: codes to pools in every header form, refusals, late answers, hooks, responses."""

from operator import attrgetter
from threading import current_thread

from twisted.internet.defer import Deferred, fail
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import Logger, LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd.common.logs.throttle import ThrottledLog
from rocketd.remoting import problems
from rocketd.remoting.errors import MAX_FIELDS, FrameError, RemotingCommandError, RequestError
from rocketd.remoting.interfaces import IJobProcessor, IRequestProcessor
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.serving.server import RemotingServer
from rocketd.remoting.serving.settings import ServerLimits
from rocketd.remoting.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

CODE = 105
FAILED = problems.PROCESSOR_FAILED.text(code=CODE)
JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ


class FakeConnection:
    """Collects written data."""

    address = "10.0.0.1:5000"
    closed = False
    behind = False
    lane = None

    def call_reactor(self, function, *arguments):
        function(*arguments)

    def __init__(self):
        self.writes = []
        self.paused = False
        self.close_asked = False

    def write(self, buffers):
        self.writes.append(b"".join(buffers))

    def send(self, command):
        self.write((command.encode(),))

    def close(self):
        self.close_asked = True

    def pause_reading(self, reason):
        self.paused = True

    def resume_reading(self, reason):
        self.paused = False

    @property
    def answers(self):
        return [RemotingCommand.decode(frame) for frame in FrameDecoder().feed(b"".join(self.writes))]


@implementer(IRequestProcessor)
class Processor:
    """Answers with the result of ``answer`` for the request."""

    def __init__(self, answer=lambda request: RemotingCommand.response(body=request.body)):
        self.answer = answer
        self.requests = []
        self.contexts = []

    def process(self, request, context):
        self.requests.append(request)
        self.contexts.append(context)
        return self.answer(request)


@implementer(IJobProcessor)
class JobProcessor:
    """Takes whole jobs."""

    def __init__(self):
        self.jobs = []

    def process_jobs(self, jobs):
        self.jobs += jobs


class Invoke:
    """Takes responses."""

    def __init__(self):
        self.responses = []

    def process_response(self, connection, response):
        self.responses.append((connection, response.code, response.opaque))


class Hook:
    """Records its calls."""

    def __init__(self, refuse=None):
        self.seen = []
        self.refuse = refuse

    def before_request(self, address, request):
        self.seen.append(("before", address, request.code))
        if self.refuse is not None:
            raise self.refuse

    def after_response(self, address, request, response):
        self.seen.append(("after", request.code, response.code))
        response.ext_fields = {"hooked": "yes"}


def raising(error):
    def answer(request):
        raise error

    return answer


def frame_of(command):
    (frame,) = FrameDecoder().feed(command.encode())
    return frame


def frame(header, body=b""):
    return (int(JSON), header, body)


class DispatchTestCase(SynchronousTestCase):
    def setUp(self):
        self.connection = FakeConnection()
        self.reactor_calls = []
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)
        self.make()

    def make(self, *hooks):
        self.dispatcher = Dispatcher(lambda function, *args: self.reactor_calls.append((function, args)), hooks)
        self.addCleanup(self.dispatcher.stop)

    def warnings(self):
        return [event for event in self.events if event.get("log_level", LogLevel.info) >= LogLevel.warn]

    def handle(self, *frames):
        """Dispatch frames, run the pools and the reactor, and return the answers."""
        self.dispatcher.dispatch(self.connection, list(frames))
        self.run_pools()
        return self.connection.answers

    def run_pools(self):
        """Let the pools and the reactor work until both have nothing to do."""
        while True:
            self.dispatcher.start()
            self.dispatcher.stop()
            if not self.reactor_calls:
                return
            while self.reactor_calls:
                function, arguments = self.reactor_calls.pop(0)
                function(*arguments)

    def ask(self, command):
        """Return the one answer to one command."""
        (answer,) = self.handle(frame_of(command))
        return answer


class LaneTests(DispatchTestCase):
    def test_processor_of_jobs_has_to_declare_its_interface(self):
        class Undeclared:
            def process_jobs(self, jobs):
                pass

        error = self.assertRaises(TypeError, self.dispatcher.register, 10, Undeclared(), "pool")
        self.assertIn("declare IJobProcessor", str(error))

    def test_header_forms_reach_their_processor(self):
        processor = Processor()
        self.dispatcher.register(CODE, processor, "p")
        headers = {
            "plain": b'{"code":105,"flag":0,"language":"JAVA","opaque":7,"version":399}',
            "spaces": b'{ "code" : 105 , "flag" : 0, "language": "JAVA", "opaque": 7, "version": 399 }',
            "other order": b'{"language":"JAVA","opaque":7,"version":399,"flag":0,"code":105}',
            "quoted code": b'{"code":"105","flag":0,"language":"CPP","opaque":7,"version":399}',
            "language as number": b'{"code":105,"flag":0,"language":0,"opaque":7,"version":399}',
            "code last in a short one": b'{"opaque":7,"code":105}',
        }
        for name, header in headers.items():
            with self.subTest(name):
                self.connection.writes.clear()
                (answer,) = self.handle(frame(header, name.encode()))
                self.assertEqual((answer.code, answer.opaque, answer.body), (0, 7, name.encode()))
                self.assertEqual(answer.serialize_type, JSON)
        self.assertEqual(self.warnings(), [])

    def test_answer_has_codec_of_request(self):
        self.dispatcher.register(CODE, Processor(), "p")
        for serialize_type in (JSON, BINARY):
            with self.subTest(serialize_type):
                self.connection.writes.clear()
                answer = self.ask(RemotingCommand(CODE, body=b"x", opaque=3, serialize_type=serialize_type))
                self.assertEqual((answer.serialize_type, answer.opaque, answer.body), (serialize_type, 3, b"x"))
                self.assertTrue(answer.is_response)

    def test_codes_of_any_number_of_digits(self):
        codes = (1, 10, 105, 310, 9001, 32767)
        for code in codes:
            self.dispatcher.register(code, Processor(lambda r: RemotingCommand.response(remark=str(r.code))), "p")
        for code in codes:
            for serialize_type in (JSON, BINARY):
                for fields in (None, {"topic": "t"}):
                    self.connection.writes.clear()
                    answer = self.ask(RemotingCommand(code, fields, serialize_type=serialize_type))
                    self.assertEqual(answer.remark, str(code))

    def test_frames_of_read_become_one_job_per_handler(self):
        jobs = {code: JobProcessor() for code in (10, 11)}
        for code, processor in jobs.items():
            self.dispatcher.register(code, processor, f"pool {code}")
        commands = [RemotingCommand(code, opaque=n) for n, code in enumerate((10, 11, 10, 10, 11))]
        self.handle(*map(frame_of, commands))
        for code, processor in jobs.items():
            (job,) = processor.jobs
            seen = [RemotingCommand.decode(frame).opaque for frame in job.frames]
            self.assertEqual(seen, [command.opaque for command in commands if command.code == code])

    def test_answers_of_job_are_one_write(self):
        self.dispatcher.register(CODE, Processor(), "p")
        self.handle(*[frame_of(RemotingCommand(CODE)) for _ in range(5)])
        self.assertEqual((len(self.connection.writes), len(self.connection.answers)), (1, 5))

    def test_register_taken_code_is_refused(self):
        self.dispatcher.register(CODE, Processor(), "p")
        self.assertRaises(ValueError, self.dispatcher.register, CODE, Processor(), "p")
        self.assertTrue(self.dispatcher.handles(CODE))
        self.assertFalse(self.dispatcher.handles(CODE + 1))

    def test_register_object_without_interface_is_refused(self):
        self.assertRaises(TypeError, self.dispatcher.register, CODE, object(), "p")
        self.assertFalse(self.dispatcher.handles(CODE))

    def test_pool_created_while_running_starts(self):
        self.dispatcher.start()
        done = []
        self.dispatcher.pool("late").call(lambda: done.append(1))
        self.dispatcher.stop()
        self.assertEqual(done, [1])


class UnknownCodeTests(DispatchTestCase):
    def test_unknown_code_is_refused_with_remark(self):
        for serialize_type in (JSON, BINARY):
            with self.subTest(serialize_type):
                self.connection.writes.clear()
                answer = self.ask(RemotingCommand(9999, opaque=4, serialize_type=serialize_type))
                self.assertEqual(answer.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
                self.assertTrue(answer.remark.startswith(" request type 9999 not supported"), answer.remark)
                self.assertEqual((answer.opaque, answer.serialize_type), (4, serialize_type))
                self.assertEqual(len(self.warnings()), 1, "of both, within a minute")

    def test_oneway_is_not_answered_and_counted(self):
        self.assertEqual(self.handle(frame_of(RemotingCommand(9999, flag=ONEWAY_FLAG))), [])
        self.assertEqual(len(self.warnings()), 1)
        self.assertEqual(
            self.dispatcher.limits.counts,
            {"one-way requests lost": 1, "one-way requests lost, code-not-supported": 1},
        )

    def test_header_with_two_codes_runs_no_processor(self):
        elsewhere = Processor()
        self.dispatcher.register(CODE + 1, elsewhere, "elsewhere")
        self.dispatcher.register(CODE, Processor(), "here")
        twice = frame(b'{"code":105,"code":106,"flag":0,"language":"JAVA","opaque":1,"version":0}')
        self.assertEqual([answer.code for answer in self.handle(twice)], [ResponseCode.REQUEST_CODE_NOT_SUPPORTED])
        self.assertEqual(elsewhere.requests, [])

    def test_header_with_two_codes_leaves_other_requests_alone(self):
        processor = Processor()
        self.dispatcher.register(CODE, processor, "p")
        twice = frame(b'{"code":105,"code":9999,"flag":0,"language":"JAVA","opaque":1,"version":0}')
        answers = self.handle(twice, frame_of(RemotingCommand(CODE, opaque=2)))
        self.assertEqual(
            [(answer.opaque, answer.code) for answer in answers],
            [(1, ResponseCode.REQUEST_CODE_NOT_SUPPORTED), (2, ResponseCode.SUCCESS)],
        )

    def test_malformed_header_closes_connection(self):
        self.dispatcher.register(CODE, Processor(), "p")
        for header in (b"not json", b"[]", b'{"code":"x"}', b"", b'{"x":' + b"[" * 100_000):
            with self.subTest(header[:20]):
                connection = FakeConnection()
                self.dispatcher.dispatch(connection, [frame(header)])
                self.assertFalse(connection.close_asked)
                self.run_pools()
                self.assertTrue(connection.close_asked)
        self.assertEqual(len(self.warnings()), 1)

    def test_header_found_malformed_in_pool_closes_with_one_line(self):
        self.dispatcher.register(CODE, Processor(), "p")
        good, bad = frame_of(RemotingCommand(CODE, opaque=1)), frame(b'{"code":105,"flag":')
        other = FakeConnection()
        self.dispatcher.dispatch(self.connection, [good, bad, good])
        self.dispatcher.dispatch(other, [good])
        self.run_pools()
        self.assertEqual(len(self.connection.answers), 1)
        self.assertTrue(self.connection.close_asked)
        self.assertEqual(len(self.warnings()), 1)
        self.assertEqual((len(other.answers), other.close_asked), (1, False))


class LostOnewayTests(DispatchTestCase):
    def ask_oneway(self, answer, code=CODE):
        self.make()
        self.events.clear()
        self.dispatcher.register(code, Processor(answer), "p")
        self.assertEqual(self.handle(frame_of(RemotingCommand(code, flag=ONEWAY_FLAG))), [])
        return self.dispatcher.limits.counts.get("one-way requests lost", 0), len(self.warnings())

    def test_refused_oneway_is_counted_and_logged(self):
        busy = RequestError(ResponseCode.SYSTEM_BUSY, "busy")
        self.assertEqual(self.ask_oneway(raising(busy)), (1, 1))
        self.assertIn("request code 105: busy", formatEvent(self.warnings()[0]))
        self.assertEqual(self.ask_oneway(lambda _: RemotingCommand.response(busy.code, busy.remark)), (1, 1))
        self.assertEqual(self.ask_oneway(lambda _: fail(busy)), (1, 1))

    def test_failed_oneway_is_counted_and_logged_once(self):
        self.assertEqual(self.ask_oneway(raising(ZeroDivisionError())), (1, 1))
        self.flushLoggedErrors(ZeroDivisionError)

    def test_successful_oneways_and_heartbeats_are_not_counted(self):
        self.assertEqual(self.ask_oneway(lambda _: RemotingCommand.response()), (0, 0))
        busy = RequestError(ResponseCode.SYSTEM_BUSY, "busy")
        self.assertEqual(self.ask_oneway(raising(busy), RequestCode.HEART_BEAT), (0, 0))


class OddHeaderTests(DispatchTestCase):
    def test_odd_headers_and_unknown_codes_are_decoded_in_a_pool(self):
        self.dispatcher.register(CODE, Processor(), "p")
        decoded_in = []
        decode = RemotingCommand.decode
        self.patch(RemotingCommand, "decode", lambda frame: decoded_in.append(current_thread().name) or decode(frame))
        blank = b'{ "code":105,"flag":0,"language":"JAVA","opaque":%d,"version":0}'
        odd = [frame(blank % 1), frame(b"[]" * 20_000), frame(blank % 2)]
        self.dispatcher.dispatch(self.connection, [odd[0], frame_of(RemotingCommand(9999)), odd[2]])
        self.dispatcher.dispatch(FakeConnection(), [odd[1]])
        self.assertEqual(decoded_in, [])
        self.run_pools()
        self.assertNotIn(current_thread().name, decoded_in)
        self.assertEqual(sorted(answer.opaque for answer in self.connection.answers if answer.code == 0), [1, 2])

    def test_odd_requests_of_connection_keep_order(self):
        processor = Processor()
        self.dispatcher.register(CODE, processor, "p")
        text = b'{ "code":105,"flag":0,"language":"JAVA","opaque":%d,"version":0,"remark":"%b"}'
        for n in range(6):
            self.dispatcher.dispatch(self.connection, [frame(text % (n, b"x" * (n % 2) * 20_000))])
        self.run_pools()
        self.assertEqual([request.opaque for request in processor.requests], list(range(6)))

    def test_refusing_does_not_decode_the_fields(self):
        self.patch(RemotingCommand, "decode", None)
        for serialize_type in (JSON, BINARY):
            self.connection.writes.clear()
            request = RemotingCommand(CODE, {"a": "b"}, opaque=5, serialize_type=serialize_type)
            job = Job(Processor(), self.connection, [frame_of(request)], 0)
            self.dispatcher.answers.refuse(job, RequestError(ResponseCode.SYSTEM_BUSY, "busy"))
            self.assertEqual(len(self.connection.writes), 1)
            self.assertIn(b"busy", self.connection.writes[0])


class CostlyHeaderTests(DispatchTestCase):
    """Headers that take long to decode close their connection, and its other requests are dropped."""

    def test_requests_behind_bad_frame_are_dropped_in_every_pool(self):
        processor = Processor()
        self.dispatcher.register(CODE, processor, "p")
        good, odd = frame_of(RemotingCommand(CODE)), frame(b'{ "code":105}')
        other = FakeConnection()
        self.dispatcher.answers.frame_failed(self.connection, FrameError("bad"))
        for job_frame in (good, odd):
            self.dispatcher.dispatch(self.connection, [job_frame])
        self.dispatcher.dispatch(other, [good])
        decode, decoded = RemotingCommand.decode, []
        self.patch(RemotingCommand, "decode", lambda frame: decoded.append(frame) or decode(frame))
        self.run_pools()
        self.assertEqual((len(processor.requests), self.connection.writes), (1, []))
        self.assertEqual(decoded, [good], "dropped requests are not decoded")
        self.assertTrue(self.connection.close_asked)

    def test_headers_with_too_many_fields_are_refused_and_counted(self):
        self.dispatcher.register(CODE, Processor(), "p")
        fields = ",".join(f'"{n}":"v"' for n in range(MAX_FIELDS + 1)).encode()
        head = b'"flag":0,"language":"JAVA","opaque":1,"version":0,"extFields":{%b}}' % fields
        allowed = {str(n): "v" for n in range(MAX_FIELDS)}
        too_many = {**allowed, "one": "more"}
        refused = [
            frame(b'{"code":105,' + head),
            frame(b'{"code":"105",' + head),
            frame(b'{ "code":105,' + head),
            frame_of(RemotingCommand(CODE, too_many, opaque=1, serialize_type=BINARY)),
        ]
        for count, bad in enumerate(refused, 1):
            connection = FakeConnection()
            self.dispatcher.dispatch(connection, [bad, frame_of(RemotingCommand(CODE, opaque=2))])
            self.run_pools()
            answers = {answer.opaque: answer for answer in connection.answers}
            self.assertEqual((answers[1].code, answers[2].code), (ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS))
            self.assertIn(f"its header with {MAX_FIELDS + 1} fields is over the limit", answers[1].remark)
            self.assertFalse(connection.close_asked)
            self.assertEqual(self.dispatcher.limits.counts, {"headers with too many fields": count})
        for serialize_type in (JSON, BINARY):
            good = RemotingCommand(CODE, allowed, serialize_type=serialize_type)
            self.dispatcher.dispatch(self.connection, [frame_of(good)])
        self.run_pools()
        self.assertEqual(len(self.connection.answers), 2)

    def test_response_with_too_many_fields_closes_the_connection(self):
        fields = {str(n): "v" for n in range(MAX_FIELDS + 1)}
        self.dispatcher.dispatch(self.connection, [frame_of(RemotingCommand(0, fields, flag=RESPONSE_FLAG))])
        self.run_pools()
        self.assertEqual((self.connection.answers, self.connection.close_asked), ([], True))

    def test_oneway_with_too_many_fields_is_counted_as_lost(self):
        self.dispatcher.register(CODE, Processor(), "p")
        fields = {str(n): "v" for n in range(MAX_FIELDS + 1)}
        self.dispatcher.dispatch(self.connection, [frame_of(RemotingCommand(CODE, fields, flag=ONEWAY_FLAG))])
        self.run_pools()
        self.assertEqual((self.connection.answers, self.connection.close_asked), ([], False))
        self.assertEqual(self.dispatcher.limits.counts["one-way requests lost, header-refused"], 1)

    def test_javas_dialect_of_json_is_read_in_short_headers_and_refused_in_long_ones(self):
        self.dispatcher.register(CODE, Processor(), "p")
        text = b"{'code':105,'extFields':{'a':'%b'},'flag':0,'language':'JAVA','opaque':%d,'version':0}"
        short, long = text % (b"x" * 16_000, 1), text % (b"x" * 16_384, 2)
        first, second = sorted(self.handle(frame(short), frame(long)), key=attrgetter("opaque"))
        self.assertEqual((first.opaque, first.code), (1, ResponseCode.SUCCESS))
        self.assertEqual((second.opaque, second.code), (2, ResponseCode.SYSTEM_ERROR))
        self.assertIn("Java's dialect is read up to 16384 bytes", second.remark)
        self.assertFalse(self.connection.close_asked)
        self.assertEqual(self.dispatcher.limits.counts, {"headers in Java's dialect too long": 1})
        self.handle(frame(long.replace(b"'opaque'", b"'nothing'")))
        self.assertTrue(self.connection.close_asked, "an answer needs an opaque")

    def test_long_header_with_raw_characters_is_read(self):
        processor = Processor()
        self.dispatcher.register(CODE, processor, "p")
        raw = "KEYS\x01密钥\x02".encode("gbk") + b"x" * 20_000
        text = b'{"code":105,"extFields":{"i":"%b"},"flag":0,"language":"CPP","opaque":1,"version":0}' % raw
        (answer,) = self.handle(frame(text))
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        self.assertEqual(processor.requests[0].ext_fields["i"], raw.decode("utf-8", "replace"))

    def test_odd_headers_of_connections_are_decoded_in_turns(self):
        processor = Processor()
        self.dispatcher.register(CODE, processor, "p")
        text = b'{ "code":105,"flag":0,"language":"JAVA","opaque":%d,"version":0}'
        other = FakeConnection()
        for connection, opaque in ((self.connection, 1), (self.connection, 2), (other, 3)):
            self.dispatcher.dispatch(connection, [frame(text % opaque)])
        self.run_pools()
        self.assertEqual([request.opaque for request in processor.requests][:2], [1, 3])

    def test_unanswered_request_limit_applies_to_every_pool(self):
        before = self.dispatcher.add_pool("before")
        RemotingServer(
            MemoryReactorClock(), self.dispatcher, port=0, limits=ServerLimits(server_max_unanswered_requests=7)
        )
        pools = [before, self.dispatcher.add_pool("after"), self.dispatcher.decode_pool]
        self.assertEqual([pool.max_per_connection for pool in pools], [7, 7, 7])


class RefuseTests(DispatchTestCase):
    def test_refuse_with_bad_frame_closes_connection_and_ends_job(self):
        good, bad = frame_of(RemotingCommand(CODE, opaque=1)), frame(b'{"code":105,"flag":')
        job = Job(Processor(), self.connection, [good, bad, good], 0)
        self.dispatcher.answers.refuse(job, RequestError(ResponseCode.SYSTEM_BUSY, "busy"))
        self.assertEqual([answer.remark for answer in self.connection.answers], ["busy"])
        self.assertTrue(self.connection.close_asked)
        self.assertEqual(job.frames, [])

    def test_oneway_is_counted_as_lost(self):
        frames = [frame_of(RemotingCommand(CODE, flag=ONEWAY_FLAG))] * 3
        self.dispatcher.answers.refuse(Job(Processor(), self.connection, frames, 0), RequestError(1, "full"))
        self.assertEqual(self.connection.answers, [])
        counts = {"one-way requests lost": 3, "one-way requests lost, system-error": 3}
        self.assertEqual(self.dispatcher.limits.counts, counts)


class FullPoolTests(DispatchTestCase):
    def fill(self, **limits):
        self.processor = Processor()
        self.dispatcher.add_pool("send", **limits)
        self.dispatcher.register(CODE, self.processor, "send")

    def test_busy_with_cause_and_measured_values(self):
        for serialize_type in (JSON, BINARY):
            with self.subTest(serialize_type):
                self.make()
                self.fill(max_requests=2)
                self.connection.writes.clear()
                request = RemotingCommand(CODE, opaque=9, serialize_type=serialize_type)
                size = len(request.encode()) - 8
                self.dispatcher.dispatch(self.connection, [frame_of(request), frame_of(request)])
                self.dispatcher.dispatch(self.connection, [frame_of(request)])
                (answer,) = self.connection.answers
                self.assertEqual((answer.code, answer.opaque), (ResponseCode.SYSTEM_BUSY, 9))
                self.assertEqual(answer.serialize_type, serialize_type)
                self.assertTrue(
                    answer.remark.startswith("[OVERLOAD]system busy, start flow control for a while; cause: ")
                )
                self.assertIn(f"the send pool holds 2 of at most 2 requests and {2 * size} of", answer.remark)
                self.assertIn("[pool-full]", answer.remark)

    def oneways(self, opaques):
        return [frame_of(RemotingCommand(CODE, flag=ONEWAY_FLAG, opaque=opaque)) for opaque in opaques]

    def handled(self):
        return [request.opaque for request in self.processor.requests]

    def test_oneway_beyond_the_limit_waits_with_its_connection_paused(self):
        self.fill(max_requests=1)
        self.dispatcher.dispatch(self.connection, self.oneways([1, 2, 3]))
        self.assertTrue(self.connection.paused)
        self.assertEqual(self.handle(*self.oneways([4])), [])
        self.run_pools()
        self.assertEqual(self.handled(), [1, 2, 3, 4])
        self.assertFalse(self.connection.paused)
        self.assertEqual(self.dispatcher.limits.counts, {})

    def test_full_pool_holds_oneways_and_refuses_others_of_same_read(self):
        self.fill(max_requests=2)
        other = [frame_of(RemotingCommand(CODE, opaque=opaque)) for opaque in (11, 12)]
        mixed = [*self.oneways([1, 2]), other[0], *self.oneways([3]), other[1]]
        self.dispatcher.dispatch(self.connection, mixed)
        self.assertEqual([(a.opaque, a.code) for a in self.connection.answers], [(11, 2), (12, 2)])
        self.run_pools()
        self.assertEqual(self.handled(), [1, 2, 3])

    def test_oneway_is_taken_by_refusing_pool(self):
        self.fill()
        self.dispatcher.pool("send").refusal = lambda: RequestError(ResponseCode.SYSTEM_BUSY, "page cache")
        self.dispatcher.dispatch(self.connection, [*self.oneways([1]), frame_of(RemotingCommand(CODE, opaque=2))])
        self.run_pools()
        self.assertEqual([(a.opaque, a.remark) for a in self.connection.answers], [(2, "page cache")])
        self.assertEqual(self.handled(), [1])

    def test_oneway_beyond_the_memory_limit_is_counted_and_logged_once(self):
        self.fill(max_requests=1, max_bytes=1000)
        for opaque in range(8):
            self.dispatcher.dispatch(FakeConnection(), self.oneways([opaque]))
        self.run_pools()
        lost = 8 - len(self.processor.requests)
        self.assertGreater(lost, 1)
        self.assertEqual(
            self.dispatcher.limits.counts, {"one-way requests lost": lost, "one-way requests lost, pool-full": lost}
        )
        self.assertEqual(len(self.warnings()), 1)

    def test_oneway_after_stop_is_counted(self):
        self.fill()
        self.dispatcher.dispatch(self.connection, [*self.oneways([1, 2]), frame_of(RemotingCommand(CODE))])
        self.dispatcher.count_unhandled()
        counts = {"one-way requests lost": 2, "one-way requests lost, server-stops": 2}
        self.assertEqual(self.dispatcher.limits.counts, counts)

    def test_requests_of_read_are_taken_up_to_limit(self):
        self.fill(max_requests=3)
        answers = self.handle(*[frame_of(RemotingCommand(CODE, opaque=n)) for n in range(5)])
        self.assertEqual({answer.opaque for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY}, {3, 4})
        self.assertEqual([request.opaque for request in self.processor.requests], [0, 1, 2])

    def test_requests_beyond_byte_limit_are_refused(self):
        self.fill(max_bytes=1000)
        frames = [frame_of(RemotingCommand(CODE, opaque=n, body=bytes(300))) for n in range(4)]
        self.dispatcher.dispatch(self.connection, frames[:2])
        answers = self.handle(*frames[2:])
        self.assertEqual({answer.opaque for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY}, {2, 3})

    def test_response_is_never_refused(self):
        self.fill(max_requests=1)
        self.dispatcher.answers.responses = Invoke()
        self.dispatcher.dispatch(self.connection, [frame_of(RemotingCommand(CODE))])
        self.dispatcher.dispatch(self.connection, [frame_of(RemotingCommand(CODE, flag=RESPONSE_FLAG, opaque=8))])
        self.assertEqual(self.dispatcher.answers.responses.responses, [(self.connection, CODE, 8)])

    def test_pool_takes_requests_after_earlier_ones_end(self):
        self.fill(max_requests=1)
        for _ in range(3):
            self.ask(RemotingCommand(CODE))
            self.connection.writes.clear()
        self.assertEqual(len(self.processor.requests), 3)


class ErrorTests(DispatchTestCase):
    def answer_of(self, error, flag=0):
        self.dispatcher.register(CODE, Processor(raising(error)), "p")
        return self.handle(frame_of(RemotingCommand(CODE, opaque=6, flag=flag)))

    def test_refusal_is_not_logged(self):
        (answer,) = self.answer_of(RequestError(ResponseCode.NO_PERMISSION, "no"))
        self.assertEqual((answer.code, answer.remark, answer.opaque), (ResponseCode.NO_PERMISSION, "no", 6))
        self.assertEqual(self.warnings(), [])

    def test_bad_header_field_is_one_line(self):
        (answer,) = self.answer_of(RemotingCommandError("the custom field <topic> is null"))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(answer.remark, "the custom field <topic> is null")
        self.assertEqual(len(self.warnings()), 1)
        self.assertNotIn("log_failure", self.warnings()[0])

    def test_failure_is_logged_once(self):
        (answer,) = self.answer_of(ZeroDivisionError("by zero"))
        self.assertEqual((answer.code, answer.remark), (ResponseCode.SYSTEM_ERROR, FAILED))
        self.assertEqual(len(self.warnings()), 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_failure_of_a_oneway_is_logged_and_not_answered(self):
        self.assertEqual(self.answer_of(ZeroDivisionError(), ONEWAY_FLAG), [])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_unencodable_remark_is_answered_with_replacement(self):
        # Trial writes the log to a file, which fails, too.
        self.dispatcher.answers.peer_log = ThrottledLog(Logger(observer=lambda event: None))
        (answer,) = self.answer_of(RemotingCommandError("no file 'a\udcff'"))
        self.assertEqual(answer.remark, "no file 'a?'")

    def test_unencodable_answer_leaves_other_requests_alone(self):
        def answer(request):
            if request.opaque == 1:
                raise RequestError(1, "\udcff")
            return RemotingCommand.response()

        logged = []
        self.dispatcher.answers.peer_log = ThrottledLog(
            Logger(observer=logged.append)
        )  # not to a file, which fails too
        self.dispatcher.register(CODE, Processor(answer), "p")
        answers = self.handle(*[frame_of(RemotingCommand(CODE, opaque=n)) for n in (1, 2)])
        self.assertEqual([answer.opaque for answer in answers], [2])
        (event,) = logged
        self.assertTrue(event["log_failure"].check(UnicodeEncodeError))

    def test_pool_continues_after_failure(self):
        outcomes = iter([ZeroDivisionError(), None])

        def answer(request):
            error = next(outcomes)
            if error is not None:
                raise error
            return RemotingCommand.response()

        self.dispatcher.register(CODE, Processor(answer), "p")
        answers = self.handle(frame_of(RemotingCommand(CODE)), frame_of(RemotingCommand(CODE)))
        self.assertEqual([answer.code for answer in answers], [ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS])
        self.flushLoggedErrors(ZeroDivisionError)

    def test_answer_longer_than_a_frame_is_refused(self):
        self.make()
        self.dispatcher.register(CODE, Processor(), "p")
        self.ask(RemotingCommand(CODE, body=b"x" * 100))
        whole = self.dispatcher.answers.longest_answer = len(b"".join(self.connection.writes))
        self.handle(frame_of(RemotingCommand(CODE, body=b"x" * 100)))
        self.assertEqual(len(self.connection.answers[-1].body), 100)
        self.handle(frame_of(RemotingCommand(CODE, body=b"x" * 101)))
        answer = self.connection.answers[-1]
        self.assertEqual((answer.code, answer.body), (ResponseCode.SYSTEM_ERROR, None))
        self.assertIn(f"its answer has {whole + 1} bytes, more than the {whole} of a frame", answer.remark)
        self.assertEqual(self.dispatcher.limits.counts, {"answers too long": 1})


class LateAnswerTests(DispatchTestCase):
    def register(self, answer=lambda request: None, *hooks):
        self.make(*hooks)
        self.processor = Processor(answer)
        self.dispatcher.register(CODE, self.processor, "p")

    def test_context_answer(self):
        for serialize_type in (JSON, BINARY):
            with self.subTest(serialize_type):
                self.register()
                self.connection.writes.clear()
                request = RemotingCommand(CODE, opaque=5, serialize_type=serialize_type)
                self.assertEqual(self.handle(frame_of(request)), [])
                self.processor.contexts[0].answer(RemotingCommand.response(remark="late"))
                (answer,) = self.connection.answers
                self.assertEqual((answer.remark, answer.opaque, answer.serialize_type), ("late", 5, serialize_type))

    def test_context_answer_to_a_oneway_is_dropped(self):
        self.register()
        self.handle(frame_of(RemotingCommand(CODE, flag=ONEWAY_FLAG)))
        self.processor.contexts[0].answer(RemotingCommand.response())
        self.assertEqual(self.connection.answers, [])

    def test_answer_of_deferred_is_sent(self):
        result = Deferred()
        self.register(lambda request: result)
        self.assertEqual(self.handle(frame_of(RemotingCommand(CODE, opaque=5))), [])
        result.callback(RemotingCommand.response(remark="late"))
        (answer,) = self.connection.answers
        self.assertEqual((answer.remark, answer.opaque), ("late", 5))

    def test_failures_of_deferred_are_answered(self):
        for error, code in (
            (RequestError(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
            (ZeroDivisionError("x"), ResponseCode.SYSTEM_ERROR),
        ):
            with self.subTest(error):
                result = Deferred()
                self.register(lambda request, result=result: result)
                self.connection.writes.clear()
                self.handle(frame_of(RemotingCommand(CODE)))
                result.errback(error)
                (answer,) = self.connection.answers
                self.assertEqual(answer.code, code)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_unencodable_answer_of_deferred_is_logged(self):
        result = Deferred()
        self.register(lambda request: result)
        self.handle(frame_of(RemotingCommand(CODE)))
        result.callback(RemotingCommand.response(remark="\udcff"))
        self.assertEqual(len(self.flushLoggedErrors(UnicodeEncodeError)), 1)

    def test_hooks_see_a_late_answer(self):
        hook = Hook()
        self.register(lambda request: None, hook)
        self.handle(frame_of(RemotingCommand(CODE)))
        self.assertEqual([seen[0] for seen in hook.seen], ["before"])
        self.processor.contexts[0].answer(RemotingCommand.response())
        self.assertEqual([seen[0] for seen in hook.seen], ["before", "after"])


class UnansweredTests(DispatchTestCase):
    """Requests that are answered later count for their connection until the answer."""

    def setUp(self):
        super().setUp()
        self.dispatcher.limit_connections(4)
        self.results = []

    def serve(self, answer=lambda request: None):
        self.processor = Processor(answer)
        self.dispatcher.register(CODE, self.processor, "p")

    def deferred(self, request):
        self.results.append(Deferred())
        return self.results[-1]

    def send(self, count, flag=0):
        for _ in range(count):  # one by one: the pool never has more than one of them
            self.handle(frame_of(RemotingCommand(CODE, flag=flag)))

    def test_reading_pauses_above_the_limit_and_resumes_at_half(self):
        self.serve()
        self.send(4)
        self.assertFalse(self.connection.paused)
        self.send(1)
        self.assertTrue(self.connection.paused)
        self.assertEqual(self.dispatcher.limits.counts, {"connections paused for unanswered requests": 1})
        for answered, paused in ((1, True), (1, True), (1, False)):
            for _ in range(answered):
                self.processor.contexts.pop().answer(RemotingCommand.response())
            self.run_pools()
            self.assertEqual(self.connection.paused, paused)

    def test_deferred_answers_count_until_they_fire(self):
        self.serve(self.deferred)
        self.send(5)
        self.assertTrue(self.connection.paused)
        for result in self.results[:3]:
            result.callback(RemotingCommand.response())
        self.run_pools()
        self.assertFalse(self.connection.paused)

    def test_kept_context_counts_after_a_deferred_without_response(self):
        self.serve(self.deferred)
        self.send(5)
        for result in self.results:
            result.callback(None)
        self.run_pools()
        self.assertTrue(self.connection.paused)

    def test_dropped_contexts_count_no_more(self):
        self.serve()
        self.send(5)
        self.processor.contexts.clear()
        self.run_pools()
        self.assertFalse(self.connection.paused)

    def test_oneways_and_answered_requests_do_not_count(self):
        self.serve()
        self.send(9, ONEWAY_FLAG)
        self.assertFalse(self.connection.paused)
        self.processor.process = lambda request, context: context.answer(RemotingCommand.response())
        self.send(9)
        self.assertEqual(len(self.connection.answers), 9)
        self.assertFalse(self.connection.paused)


class HookTests(DispatchTestCase):
    def test_before_and_after(self):
        hooks = Hook(), Hook()
        self.make(*hooks)
        self.dispatcher.register(CODE, Processor(), "p")
        answer = self.ask(RemotingCommand(CODE))
        for hook in hooks:
            self.assertEqual(hook.seen, [("before", self.connection.address, CODE), ("after", CODE, 0)])
        self.assertEqual(answer.ext_fields, {"hooked": "yes"})

    def test_refusing_hook_answers_instead_of_processor(self):
        hook = Hook(RequestError(ResponseCode.NO_PERMISSION, "signature"))
        self.make(hook)
        processor = Processor()
        self.dispatcher.register(CODE, processor, "p")
        answer = self.ask(RemotingCommand(CODE))
        self.assertEqual((answer.code, answer.remark), (ResponseCode.NO_PERMISSION, "signature"))
        self.assertEqual(processor.requests, [])

    def test_failing_hook_is_answered_and_logged(self):
        self.make(Hook(ValueError("bad key")))
        self.dispatcher.register(CODE, Processor(), "p")
        answer = self.ask(RemotingCommand(CODE))
        self.assertEqual((answer.code, answer.remark), (ResponseCode.SYSTEM_ERROR, FAILED))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class ResponseTests(DispatchTestCase):
    def test_responses_of_any_code_reach_invoke_layer(self):
        self.dispatcher.register(11, Processor(), "p")
        for code in (0, 11, 22, 9999):
            for serialize_type in (JSON, BINARY):
                for one_read in (True, False):
                    with self.subTest(code=code, serialize_type=serialize_type, one_read=one_read):
                        self.dispatcher.answers.responses = Invoke()
                        self.connection.writes.clear()
                        response = RemotingCommand(
                            code, flag=RESPONSE_FLAG, opaque=77, serialize_type=serialize_type, remark="r"
                        )
                        frames = [frame_of(response)]
                        if one_read:
                            frames.append(frame_of(RemotingCommand(11)))
                        self.assertEqual(len(self.handle(*frames)), int(one_read))
                        self.assertEqual(self.dispatcher.answers.responses.responses, [(self.connection, code, 77)])

    def test_response_without_invoke_layer_is_logged(self):
        self.assertEqual(self.handle(frame_of(RemotingCommand(0, flag=RESPONSE_FLAG))), [])
        self.assertEqual(len(self.warnings()), 1)
