"""A gRPC client that knows nothing but a port: message types and methods come from the server's reflection service."""
import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "assay.v1.Inference"


class GrpcClient:
    def __init__(self, port, credentials=None, options=()):
        address = f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
        options = [("grpc.enable_http_proxy", 0), *options]
        self.channel = grpc.secure_channel(address, credentials, options) if credentials else \
            grpc.insecure_channel(address, options)
        self._database = ProtoReflectionDescriptorDatabase(self.channel)
        self._pool = DescriptorPool(self._database)
        self.service = self._pool.FindServiceByName(SERVICE)

    def services(self):
        return set(self._database.get_services())

    def message(self, name, **fields):
        return GetMessageClass(self._pool.FindMessageTypeByName("assay.v1." + name))(**fields)

    def call(self, method, **fields):
        """(path, serializer, deserializer, request) of a call."""
        descriptor = self.service.methods_by_name[method]
        request = GetMessageClass(descriptor.input_type)(**fields)
        return f"/{SERVICE}/{method}", type(request).SerializeToString, \
            GetMessageClass(descriptor.output_type).FromString, request

    def unary(self, method, timeout=60, metadata=(), **fields):
        path, serialize, parse, request = self.call(method, **fields)
        return self.channel.unary_unary(path, serialize, parse)(request, timeout=timeout, metadata=metadata)

    def stream(self, timeout=120, metadata=(), method="Generate", **fields):
        path, serialize, parse, request = self.call(method, **fields)
        return self.channel.unary_stream(path, serialize, parse)(request, timeout=timeout, metadata=metadata)

    def close(self):
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()
