"""Compares the sender of a broker's request before anything else: its cluster, its life, its process (G-4)."""

from __future__ import annotations

from cluster.core import fencing
from cluster.core.messages import (
    NO_BROKER_EPOCH,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterTopicConfigsRequest,
    BrokerHeartbeatRequest,
    CreatePartitionsRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    FetchMetadataRequest,
    Header,
    RegisterBrokerRequest,
    RequestBody,
)
from cluster.core.metadata.image import MetadataImage


def check_sender(body: RequestBody, image: MetadataImage) -> None:
    """Refuses a request of a broker of another cluster or of an earlier life, by `image`. Raises ClusterError.

    A registration begins a life, so only its cluster is compared. A broker that is not registered yet may read the
    metadata. What a client sends has no header.
    """
    match body:
        case RegisterBrokerRequest():
            if body.header is not None:
                fencing.check_cluster(body.broker_id, body.header.cluster_id, image.cluster_id)
        case AllocateProducerIdsRequest() | AlterPartitionRequest() | BrokerHeartbeatRequest():
            fencing.check_names_itself(body.header, body.broker_id, body.broker_epoch)
            _check(body.header, image)
        case FetchMetadataRequest(header=header):
            named = NO_BROKER_EPOCH if header is None else header.broker_epoch
            fencing.check_names_itself(header, body.broker_id, named)
            _check(header, image)
        case (
            CreateTopicRequest()
            | DeleteTopicRequest()
            | AlterTopicConfigsRequest()
            | CreatePartitionsRequest()
        ):
            _check(body.header, image)
        case _:
            pass


def _check(header: Header | None, image: MetadataImage) -> None:
    if header is None:
        return
    fencing.check_cluster(header.broker_id, header.cluster_id, image.cluster_id)
    if header.broker_epoch == NO_BROKER_EPOCH:
        return
    known = image.brokers.get(header.broker_id)
    current = NO_BROKER_EPOCH if known is None else known.broker_epoch
    fencing.check_broker_epoch(header.broker_id, header.broker_epoch, current)
    if known is not None:
        fencing.check_incarnation(header.broker_id, header.incarnation, known.incarnation)
