"""The layouts of the messages in Kafka's own topics, version by version, as in Apache Kafka 4.1.

A line is `NAME VERSIONS: field:type …`; a line that begins with a blank continues the one before. `~` after the
versions: a flexible layout, with compact lengths and tagged fields (KIP-482). Types: `int8` to `int64`, `uint16`,
`float64`, `boolean`, `uuid`, `string`, `bytes`; `[type]` an array; `{…}` a structure; `?` may be null. `@3=0`: a tagged
field with its tag, and the default that it has when it is absent; `zero` is the uuid of zeros, `struct` a structure of
zeros. Fields are in the order in which Kafka prints them; tagged ones have no place in the order of the bytes.
"""

from __future__ import annotations

CONTROL = """
LeaderChangeMessage 0~: version:int16 leaderId:int32 voters:[{voterId:int32}] grantingVoters:[{voterId:int32}]
KRaftVersionRecord 0~: version:int16 kRaftVersion:int16
SnapshotFooterRecord 0~: version:int16
SnapshotHeaderRecord 0~: version:int16 lastContainedLogTimestamp:int64
VotersRecord 0~: version:int16 voters:[{voterId:int32 voterDirectoryId:uuid endpoints:[{name:string
  host:string port:uint16}] kRaftVersionFeature:{minSupportedVersion:int16 maxSupportedVersion:int16}}]
"""
"""Values of control records."""

TRANSACTIONS = """
TransactionLogKey 0: transactionalId:string
TransactionLogValue 0: producerId:int64 producerEpoch:int16 transactionTimeoutMs:int32
  transactionStatus:int8 transactionPartitions:[{topic:string partitionIds:[int32]}]?
  transactionLastUpdateTimestampMs:int64 transactionStartTimestampMs:int64
TransactionLogValue 1~: producerId:int64 previousProducerId:int64@0=-1 nextProducerId:int64@1=-1
  producerEpoch:int16 nextProducerEpoch:int16@3=-1 transactionTimeoutMs:int32 transactionStatus:int8
  transactionPartitions:[{topic:string partitionIds:[int32]}]? transactionLastUpdateTimestampMs:int64
  transactionStartTimestampMs:int64 clientTransactionVersion:int16@2=0
"""
"""`__transaction_state`."""

SHARE_STATE = """
ShareSnapshotKey 0: groupId:string topicId:uuid partition:int32
ShareSnapshotValue 0~: snapshotEpoch:int32 stateEpoch:int32 leaderEpoch:int32 startOffset:int64
  createTimestamp:int64 writeTimestamp:int64 stateBatches:[{firstOffset:int64 lastOffset:int64
  deliveryState:int8 deliveryCount:int16}]
ShareUpdateKey 0: groupId:string topicId:uuid partition:int32
ShareUpdateValue 0~: snapshotEpoch:int32 leaderEpoch:int32 startOffset:int64
  stateBatches:[{firstOffset:int64 lastOffset:int64 deliveryState:int8 deliveryCount:int16}]
"""
"""`__share_group_state`."""

GROUPS = """
ConsumerGroupCurrentMemberAssignmentKey 0: groupId:string memberId:string
ConsumerGroupCurrentMemberAssignmentValue 0~: memberEpoch:int32 previousMemberEpoch:int32 state:int8
  assignedPartitions:[{topicId:uuid partitions:[int32]}] partitionsPendingRevocation:[{topicId:uuid
  partitions:[int32]}]
ConsumerGroupMemberMetadataKey 0: groupId:string memberId:string
ConsumerGroupMemberMetadataValue 0~: instanceId:string? rackId:string? clientId:string clientHost:string
  subscribedTopicNames:[string] subscribedTopicRegex:string? rebalanceTimeoutMs:int32
  serverAssignor:string? classicMemberMetadata:{sessionTimeoutMs:int32 supportedProtocols:[{name:string
  metadata:bytes}]}?@0=struct
ConsumerGroupMetadataKey 0: groupId:string
ConsumerGroupMetadataValue 0~: epoch:int32 metadataHash:int64@0=0
ConsumerGroupPartitionMetadataKey 0: groupId:string
ConsumerGroupPartitionMetadataValue 0~: topics:[{topicId:uuid topicName:string numPartitions:int32
  partitionMetadata:[{partition:int32 racks:[string]}]}]
ConsumerGroupRegularExpressionKey 0: groupId:string regularExpression:string
ConsumerGroupRegularExpressionValue 0~: topics:[string] version:int64 timestamp:int64
ConsumerGroupTargetAssignmentMemberKey 0: groupId:string memberId:string
ConsumerGroupTargetAssignmentMemberValue 0~: topicPartitions:[{topicId:uuid partitions:[int32]}]
ConsumerGroupTargetAssignmentMetadataKey 0: groupId:string
ConsumerGroupTargetAssignmentMetadataValue 0~: assignmentEpoch:int32
ConsumerProtocolAssignment 0-3: assignedPartitions:[{topic:string partitions:[int32]}] userData:bytes?
ConsumerProtocolSubscription 0: topics:[string] userData:bytes?
ConsumerProtocolSubscription 1: topics:[string] userData:bytes? ownedPartitions:[{topic:string
  partitions:[int32]}]
ConsumerProtocolSubscription 2: topics:[string] userData:bytes? ownedPartitions:[{topic:string
  partitions:[int32]}] generationId:int32
ConsumerProtocolSubscription 3: topics:[string] userData:bytes? ownedPartitions:[{topic:string
  partitions:[int32]}] generationId:int32 rackId:string?
GroupMetadataKey 0: group:string
GroupMetadataValue 0: protocolType:string generation:int32 protocol:string? leader:string?
  members:[{memberId:string clientId:string clientHost:string sessionTimeout:int32 subscription:bytes
  assignment:bytes}]
GroupMetadataValue 1: protocolType:string generation:int32 protocol:string? leader:string?
  members:[{memberId:string clientId:string clientHost:string rebalanceTimeout:int32
  sessionTimeout:int32 subscription:bytes assignment:bytes}]
GroupMetadataValue 2: protocolType:string generation:int32 protocol:string? leader:string?
  currentStateTimestamp:int64 members:[{memberId:string clientId:string clientHost:string
  rebalanceTimeout:int32 sessionTimeout:int32 subscription:bytes assignment:bytes}]
GroupMetadataValue 3: protocolType:string generation:int32 protocol:string? leader:string?
  currentStateTimestamp:int64 members:[{memberId:string groupInstanceId:string? clientId:string
  clientHost:string rebalanceTimeout:int32 sessionTimeout:int32 subscription:bytes assignment:bytes}]
GroupMetadataValue 4~: protocolType:string generation:int32 protocol:string? leader:string?
  currentStateTimestamp:int64 members:[{memberId:string groupInstanceId:string? clientId:string
  clientHost:string rebalanceTimeout:int32 sessionTimeout:int32 subscription:bytes assignment:bytes}]
LegacyOffsetCommitKey 0: group:string topic:string partition:int32
LegacyOffsetCommitValue 0: offset:int64 metadata:string commitTimestamp:int64
OffsetCommitKey 0: group:string topic:string partition:int32
OffsetCommitValue 0: offset:int64 metadata:string commitTimestamp:int64
OffsetCommitValue 1: offset:int64 metadata:string commitTimestamp:int64 expireTimestamp:int64
OffsetCommitValue 2: offset:int64 metadata:string commitTimestamp:int64
OffsetCommitValue 3: offset:int64 leaderEpoch:int32 metadata:string commitTimestamp:int64
OffsetCommitValue 4~: offset:int64 leaderEpoch:int32 metadata:string commitTimestamp:int64
  topicId:uuid@0=zero
ShareGroupCurrentMemberAssignmentKey 0: groupId:string memberId:string
ShareGroupCurrentMemberAssignmentValue 0~: memberEpoch:int32 previousMemberEpoch:int32 state:int8
  assignedPartitions:[{topicId:uuid partitions:[int32]}]
ShareGroupMemberMetadataKey 0: groupId:string memberId:string
ShareGroupMemberMetadataValue 0~: rackId:string? clientId:string clientHost:string
  subscribedTopicNames:[string]
ShareGroupMetadataKey 0: groupId:string
ShareGroupMetadataValue 0~: epoch:int32 metadataHash:int64
ShareGroupStatePartitionMetadataKey 0: groupId:string
ShareGroupStatePartitionMetadataValue 0~: initializingTopics:[{topicId:uuid topicName:string
  partitions:[int32]}] initializedTopics:[{topicId:uuid topicName:string partitions:[int32]}]
  deletingTopics:[{topicId:uuid topicName:string}]
ShareGroupTargetAssignmentMemberKey 0: groupId:string memberId:string
ShareGroupTargetAssignmentMemberValue 0~: topicPartitions:[{topicId:uuid partitions:[int32]}]
ShareGroupTargetAssignmentMetadataKey 0: groupId:string
ShareGroupTargetAssignmentMetadataValue 0~: assignmentEpoch:int32
StreamsGroupCurrentMemberAssignmentKey 0: groupId:string memberId:string
StreamsGroupCurrentMemberAssignmentValue 0~: memberEpoch:int32 previousMemberEpoch:int32 state:int8
  activeTasks:[{subtopologyId:string partitions:[int32]}] standbyTasks:[{subtopologyId:string
  partitions:[int32]}] warmupTasks:[{subtopologyId:string partitions:[int32]}]
  activeTasksPendingRevocation:[{subtopologyId:string partitions:[int32]}]
  standbyTasksPendingRevocation:[{subtopologyId:string partitions:[int32]}]
  warmupTasksPendingRevocation:[{subtopologyId:string partitions:[int32]}]
StreamsGroupMemberMetadataKey 0: groupId:string memberId:string
StreamsGroupMemberMetadataValue 0~: instanceId:string? rackId:string? clientId:string clientHost:string
  rebalanceTimeoutMs:int32 topologyEpoch:int32 processId:string userEndpoint:{host:string port:uint16}?
  clientTags:[{key:string value:string}]
StreamsGroupMetadataKey 0: groupId:string
StreamsGroupMetadataValue 0~: epoch:int32 metadataHash:int64
StreamsGroupTargetAssignmentMemberKey 0: groupId:string memberId:string
StreamsGroupTargetAssignmentMemberValue 0~: activeTasks:[{subtopologyId:string partitions:[int32]}]
  standbyTasks:[{subtopologyId:string partitions:[int32]}] warmupTasks:[{subtopologyId:string
  partitions:[int32]}]
StreamsGroupTargetAssignmentMetadataKey 0: groupId:string
StreamsGroupTargetAssignmentMetadataValue 0~: assignmentEpoch:int32
StreamsGroupTopologyKey 0: groupId:string
StreamsGroupTopologyValue 0~: epoch:int32 subtopologies:[{subtopologyId:string sourceTopics:[string]
  sourceTopicRegex:[string] stateChangelogTopics:[{name:string partitions:int32 replicationFactor:int16
  topicConfigs:[{key:string value:string}]}] repartitionSinkTopics:[string]
  repartitionSourceTopics:[{name:string partitions:int32 replicationFactor:int16
  topicConfigs:[{key:string value:string}]}] copartitionGroups:[{sourceTopics:[int16]
  sourceTopicRegex:[int16] repartitionSourceTopics:[int16]}]}]
"""
"""`__consumer_offsets`, and what its members carry of the consumer protocol."""

CLUSTER_METADATA = """
AbortTransactionRecord 0~: reason:string?@0=null
AccessControlEntryRecord 0~: id:uuid resourceType:int8 resourceName:string patternType:int8
  principal:string host:string operation:int8 permissionType:int8
BeginTransactionRecord 0~: name:string?@0=null
BrokerRegistrationChangeRecord 0~: brokerId:int32 brokerEpoch:int64 fenced:int8@0=0
BrokerRegistrationChangeRecord 1~: brokerId:int32 brokerEpoch:int64 fenced:int8@0=0
  inControlledShutdown:int8@1=0
BrokerRegistrationChangeRecord 2~: brokerId:int32 brokerEpoch:int64 fenced:int8@0=0
  inControlledShutdown:int8@1=0 logDirs:[uuid]@2=[]
ClearElrRecord 0~: topicName:string
ClientQuotaRecord 0~: entity:[{entityType:string entityName:string?}] key:string value:float64
  remove:boolean
ConfigRecord 0~: resourceType:int8 resourceName:string name:string value:string?
DelegationTokenRecord 0~: owner:string requester:string renewers:[string] issueTimestamp:int64
  maxTimestamp:int64 expirationTimestamp:int64 tokenId:string
EndTransactionRecord 0~:
FeatureLevelRecord 0~: name:string featureLevel:int16
FenceBrokerRecord 0~: id:int32 epoch:int64
NoOpRecord 0~:
PartitionChangeRecord 0~: partitionId:int32 topicId:uuid isr:[int32]?@0=null leader:int32@1=-2
  replicas:[int32]?@2=null removingReplicas:[int32]?@3=null addingReplicas:[int32]?@4=null
  leaderRecoveryState:int8@5=-1
PartitionChangeRecord 1~: partitionId:int32 topicId:uuid isr:[int32]?@0=null leader:int32@1=-2
  replicas:[int32]?@2=null removingReplicas:[int32]?@3=null addingReplicas:[int32]?@4=null
  leaderRecoveryState:int8@5=-1 directories:[uuid]?@8=null
PartitionChangeRecord 2~: partitionId:int32 topicId:uuid isr:[int32]?@0=null leader:int32@1=-2
  replicas:[int32]?@2=null removingReplicas:[int32]?@3=null addingReplicas:[int32]?@4=null
  leaderRecoveryState:int8@5=-1 directories:[uuid]?@8=null eligibleLeaderReplicas:[int32]?@6=null
  lastKnownElr:[int32]?@7=null
PartitionRecord 0~: partitionId:int32 topicId:uuid replicas:[int32] isr:[int32] removingReplicas:[int32]
  addingReplicas:[int32] leader:int32 leaderRecoveryState:int8@0=0 leaderEpoch:int32
  partitionEpoch:int32
PartitionRecord 1~: partitionId:int32 topicId:uuid replicas:[int32] isr:[int32] removingReplicas:[int32]
  addingReplicas:[int32] leader:int32 leaderRecoveryState:int8@0=0 leaderEpoch:int32
  partitionEpoch:int32 directories:[uuid]
PartitionRecord 2~: partitionId:int32 topicId:uuid replicas:[int32] isr:[int32] removingReplicas:[int32]
  addingReplicas:[int32] leader:int32 leaderRecoveryState:int8@0=0 leaderEpoch:int32
  partitionEpoch:int32 directories:[uuid] eligibleLeaderReplicas:[int32]?@1=null
  lastKnownElr:[int32]?@2=null
ProducerIdsRecord 0~: brokerId:int32 brokerEpoch:int64 nextProducerId:int64
RegisterBrokerRecord 0~: brokerId:int32 incarnationId:uuid brokerEpoch:int64 endPoints:[{name:string
  host:string port:uint16 securityProtocol:int16}] features:[{name:string minSupportedVersion:int16
  maxSupportedVersion:int16}] rack:string? fenced:boolean
RegisterBrokerRecord 1~: brokerId:int32 incarnationId:uuid brokerEpoch:int64 endPoints:[{name:string
  host:string port:uint16 securityProtocol:int16}] features:[{name:string minSupportedVersion:int16
  maxSupportedVersion:int16}] rack:string? fenced:boolean inControlledShutdown:boolean
RegisterBrokerRecord 2~: brokerId:int32 isMigratingZkBroker:boolean incarnationId:uuid brokerEpoch:int64
  endPoints:[{name:string host:string port:uint16 securityProtocol:int16}] features:[{name:string
  minSupportedVersion:int16 maxSupportedVersion:int16}] rack:string? fenced:boolean
  inControlledShutdown:boolean
RegisterBrokerRecord 3~: brokerId:int32 isMigratingZkBroker:boolean incarnationId:uuid brokerEpoch:int64
  endPoints:[{name:string host:string port:uint16 securityProtocol:int16}] features:[{name:string
  minSupportedVersion:int16 maxSupportedVersion:int16}] rack:string? fenced:boolean
  inControlledShutdown:boolean logDirs:[uuid]@0=[]
RegisterControllerRecord 0~: controllerId:int32 incarnationId:uuid zkMigrationReady:boolean
  endPoints:[{name:string host:string port:uint16 securityProtocol:int16}] features:[{name:string
  minSupportedVersion:int16 maxSupportedVersion:int16}]
RemoveAccessControlEntryRecord 0~: id:uuid
RemoveDelegationTokenRecord 0~: tokenId:string
RemoveTopicRecord 0~: topicId:uuid
RemoveUserScramCredentialRecord 0~: name:string mechanism:int8
TopicRecord 0~: name:string topicId:uuid
UnfenceBrokerRecord 0~: id:int32 epoch:int64
UnregisterBrokerRecord 0~: brokerId:int32 brokerEpoch:int64
UserScramCredentialRecord 0~: name:string mechanism:int8 salt:bytes storedKey:bytes serverKey:bytes
  iterations:int32
ZkMigrationStateRecord 0~: zkMigrationState:int8
"""
"""`__cluster_metadata`."""
