"""gRPC on trio: a server and a channel that end what has to end. The only package that knows purerpc and h2."""

from blockx.rpc.channel import Channel, ResponseStream, open_channel
from blockx.rpc.limits import Limits
from blockx.rpc.server import RpcServer, ServerCall, Service

__all__ = ["Channel", "Limits", "ResponseStream", "RpcServer", "ServerCall", "Service", "open_channel"]
