"""gRPC on trio: a server and a channel that end what has to end. The only package that knows purerpc and h2."""

from blockx.rpc.call import ResponseStream
from blockx.rpc.channel import Channel, open_channel
from blockx.rpc.interceptors import AccessLog, Interceptor, Proceed
from blockx.rpc.limits import Limits
from blockx.rpc.server import RpcServer, ServerCall, Service
from blockx.rpc.status import Code, Status
from blockx.rpc.tls import ClientTls, ServerTls
from blockx.rpc.tokens import TokenCheck, read_token

__all__ = [
    "AccessLog",
    "Channel",
    "ClientTls",
    "Code",
    "Interceptor",
    "Limits",
    "Proceed",
    "ResponseStream",
    "RpcServer",
    "ServerCall",
    "ServerTls",
    "Service",
    "Status",
    "TokenCheck",
    "open_channel",
    "read_token",
]
