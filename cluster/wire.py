"""Body to protobuf message and back, whatever the body is: the one place where the two meet."""

from __future__ import annotations

from typing import assert_never

from google.protobuf.message import Message

from cluster import messages, wire_admin, wire_controller, wire_fetch, wire_metadata, wire_produce
from cluster.messages import RequestBody, ResponseBody
from cluster.rpc import admin_pb2, controller_pb2, data_pb2, replica_pb2


class UnknownMessage(Exception):
    """A protobuf message that is no body of ours."""


def request_to_wire(body: RequestBody) -> Message:
    match body:
        case messages.FetchRequest():
            return wire_fetch.fetch_request_to_wire(body)
        case messages.ProduceRequest():
            return wire_produce.produce_request_to_wire(body)
        case messages.ListOffsetsRequest():
            return wire_metadata.list_offsets_request_to_wire(body)
        case messages.MetadataRequest():
            return wire_metadata.metadata_request_to_wire(body)
        case messages.DescribeReplicasRequest():
            return wire_metadata.describe_replicas_request_to_wire(body)
        case messages.InitProducerIdRequest():
            return data_pb2.InitProducerIdRequest()
        case messages.AllocateProducerIdsRequest():
            return wire_controller.allocate_producer_ids_request_to_wire(body)
        case messages.CreateTopicRequest():
            return wire_admin.create_topic_request_to_wire(body)
        case messages.DeleteTopicRequest():
            return wire_admin.delete_topic_request_to_wire(body)
        case messages.AlterTopicConfigsRequest():
            return wire_admin.alter_topic_configs_request_to_wire(body)
        case messages.RegisterBrokerRequest():
            return wire_controller.register_broker_request_to_wire(body)
        case messages.BrokerHeartbeatRequest():
            return wire_controller.broker_heartbeat_request_to_wire(body)
        case messages.AlterPartitionRequest():
            return wire_controller.alter_partition_request_to_wire(body)
        case messages.FetchMetadataRequest():
            return wire_controller.fetch_metadata_request_to_wire(body)
        case _:
            assert_never(body)


def response_to_wire(body: ResponseBody) -> Message:
    match body:
        case messages.FetchResponse():
            return wire_fetch.fetch_response_to_wire(body)
        case messages.ProduceResponse():
            return wire_produce.produce_response_to_wire(body)
        case messages.ListOffsetsResponse():
            return wire_metadata.list_offsets_response_to_wire(body)
        case messages.MetadataResponse():
            return wire_metadata.metadata_response_to_wire(body)
        case messages.DescribeReplicasResponse():
            return wire_metadata.describe_replicas_response_to_wire(body)
        case messages.InitProducerIdResponse():
            return wire_metadata.init_producer_id_response_to_wire(body)
        case messages.AllocateProducerIdsResponse():
            return wire_controller.allocate_producer_ids_response_to_wire(body)
        case messages.CreateTopicResponse():
            return wire_admin.create_topic_response_to_wire(body)
        case messages.DeleteTopicResponse():
            return wire_admin.delete_topic_response_to_wire(body)
        case messages.AlterTopicConfigsResponse():
            return wire_admin.alter_topic_configs_response_to_wire(body)
        case messages.RegisterBrokerResponse():
            return wire_controller.register_broker_response_to_wire(body)
        case messages.BrokerHeartbeatResponse():
            return wire_controller.broker_heartbeat_response_to_wire(body)
        case messages.AlterPartitionResponse():
            return wire_controller.alter_partition_response_to_wire(body)
        case messages.FetchMetadataResponse():
            return wire_controller.fetch_metadata_response_to_wire(body)
        case _:
            assert_never(body)


def request_from_wire(message: Message) -> RequestBody:
    """Raises UnknownMessage."""
    match message:
        case replica_pb2.FetchRequest():
            return wire_fetch.fetch_request_from_wire(message)
        case data_pb2.ProduceRequest():
            return wire_produce.produce_request_from_wire(message)
        case data_pb2.ListOffsetsRequest():
            return wire_metadata.list_offsets_request_from_wire(message)
        case data_pb2.MetadataRequest():
            return wire_metadata.metadata_request_from_wire(message)
        case data_pb2.DescribeReplicasRequest():
            return wire_metadata.describe_replicas_request_from_wire(message)
        case data_pb2.InitProducerIdRequest():
            return messages.InitProducerIdRequest()
        case controller_pb2.AllocateProducerIdsRequest():
            return wire_controller.allocate_producer_ids_request_from_wire(message)
        case admin_pb2.CreateTopicRequest():
            return wire_admin.create_topic_request_from_wire(message)
        case admin_pb2.DeleteTopicRequest():
            return wire_admin.delete_topic_request_from_wire(message)
        case admin_pb2.AlterTopicConfigsRequest():
            return wire_admin.alter_topic_configs_request_from_wire(message)
        case controller_pb2.RegisterBrokerRequest():
            return wire_controller.register_broker_request_from_wire(message)
        case controller_pb2.BrokerHeartbeatRequest():
            return wire_controller.broker_heartbeat_request_from_wire(message)
        case controller_pb2.AlterPartitionRequest():
            return wire_controller.alter_partition_request_from_wire(message)
        case controller_pb2.FetchMetadataRequest():
            return wire_controller.fetch_metadata_request_from_wire(message)
        case _:
            raise UnknownMessage(message.DESCRIPTOR.full_name)


def response_from_wire(message: Message) -> ResponseBody:
    """Raises UnknownMessage."""
    match message:
        case replica_pb2.FetchResponse():
            return wire_fetch.fetch_response_from_wire(message)
        case data_pb2.ProduceResponse():
            return wire_produce.produce_response_from_wire(message)
        case data_pb2.ListOffsetsResponse():
            return wire_metadata.list_offsets_response_from_wire(message)
        case data_pb2.MetadataResponse():
            return wire_metadata.metadata_response_from_wire(message)
        case data_pb2.DescribeReplicasResponse():
            return wire_metadata.describe_replicas_response_from_wire(message)
        case data_pb2.InitProducerIdResponse():
            return wire_metadata.init_producer_id_response_from_wire(message)
        case controller_pb2.AllocateProducerIdsResponse():
            return wire_controller.allocate_producer_ids_response_from_wire(message)
        case admin_pb2.CreateTopicResponse():
            return wire_admin.create_topic_response_from_wire(message)
        case admin_pb2.DeleteTopicResponse():
            return wire_admin.delete_topic_response_from_wire(message)
        case admin_pb2.AlterTopicConfigsResponse():
            return wire_admin.alter_topic_configs_response_from_wire(message)
        case controller_pb2.RegisterBrokerResponse():
            return wire_controller.register_broker_response_from_wire(message)
        case controller_pb2.BrokerHeartbeatResponse():
            return wire_controller.broker_heartbeat_response_from_wire(message)
        case controller_pb2.AlterPartitionResponse():
            return wire_controller.alter_partition_response_from_wire(message)
        case controller_pb2.FetchMetadataResponse():
            return wire_controller.fetch_metadata_response_from_wire(message)
        case _:
            raise UnknownMessage(message.DESCRIPTOR.full_name)
