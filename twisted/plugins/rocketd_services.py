"""The twistd commands of rocketd. Names only: what they run is imported when it is used."""

from twisted.application.service import ServiceMaker

namesrv = ServiceMaker("rocketd name server", "rocketd.namesrv.tap", "RocketMQ name server.", "rocketd-namesrv")
broker = ServiceMaker("rocketd broker", "rocketd.broker.tap", "RocketMQ broker with its store.", "rocketd-broker")
console = ServiceMaker(
    "rocketd console", "rocketd.console.tap", "Web console of a RocketMQ cluster.", "rocketd-console"
)
