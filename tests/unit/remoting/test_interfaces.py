"""The interfaces above the client and the server: their providers and users."""

from twisted.application.service import IService
from twisted.internet import reactor
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyClass, verifyObject

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.service import make_broker
from rocketd.client import ClientConfig
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.namesrv.service import make_namesrv
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.interfaces import IRemotingClient, IRemotingServer, IRemotingService, IRPCHook
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.server import RemotingServer


@implementer(IRPCHook)
class Hook:
    def __init__(self):
        self.seen = []

    def before_request(self, address, request):
        self.seen.append((address, request.code))

    def after_response(self, address, request, response):
        pass


class InterfaceTests(SynchronousTestCase):
    def setUp(self):
        self.reactor = MemoryReactorClock()

    def make_server(self):
        dispatcher = Dispatcher(lambda function, *arguments: function(*arguments))
        return RemotingServer(self.reactor, dispatcher, port=0)

    def test_client_provides_its_interface(self):
        verifyClass(IRemotingClient, RemotingClient)
        verifyObject(IRemotingClient, RemotingClient(self.reactor))

    def test_server_provides_its_interface(self):
        verifyClass(IRemotingServer, RemotingServer)
        verifyObject(IRemotingServer, self.make_server())

    def test_client_and_server_are_services_of_remoting(self):
        for made in (RemotingClient(self.reactor), self.make_server()):
            verifyObject(IRemotingService, made)
        verifyObject(IService, self.make_server())

    def test_daemons_and_clients_provide_remoting_interfaces(self):
        directory = self.mktemp()
        name_server = make_namesrv(NamesrvSettings.load(home=directory)[0], reactor)
        broker = make_broker(BrokerSettings.load(home=directory)[0], reactor)
        program = ClientInstance(self.reactor, ClientConfig(namesrv="127.0.0.1:1"))
        for server in (name_server.server, broker.server):
            verifyObject(IRemotingServer, server)
        for client in (broker.client, program.remoting):
            verifyObject(IRemotingClient, client)

    def test_hook_is_registered_with_client_and_server(self):
        hook = Hook()
        client, server = RemotingClient(self.reactor), self.make_server()
        client.register_rpc_hook(hook)
        server.register_rpc_hook(hook)
        self.assertEqual((client.invoke.hooks, server.dispatcher.answers.hooks), ([hook], (hook,)))
