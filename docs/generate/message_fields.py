"""Which row of docs.generate.recipients each field of each message has.

A test compares this with the descriptors of protos/rado/v1, so a new field needs a row before it is merged.
"""

from collections.abc import Mapping

FIELDS: Mapping[str, Mapping[str, str]] = {
    "Chunk": {"upload": "index ciphertexts content_hash"},
    "LedgerHead": {"head": "entries digest sealed_sums"},
    "Acceptance": {
        "acceptance": "party rows mask_key roster_version share_key",
        "query": "query_id",
        "attempt": "attempt",
        "head": "ledger_head",
    },
    "Refusal": {"answer": "query_id attempt party code"},
    "Pending": {"answer": "query_id attempt party"},
    "Ready": {"answer": "query_id attempt party", "sharing": "sharing_digest"},
    "KeyShares": {
        "sharing": "query_id attempt party sharing_digest self_commitment sealed self_shares key_shares",
    },
    "Unmasking": {"survivors": "query_id attempt party cohort_digest survivors_digest sealed"},
    "Cohort": {"cohort": "query_id attempt acceptances", "sharing": "sharing_digest"},
    "Receipt": {
        "receipt": "query_id attempt party cohort_digest upload_digest chunks ciphertexts",
        "head": "ledger_head",
    },
    "Challenge": {"witness": "federation party nonce signed_at_unix_s"},
    "Witness": {"witness": "federation party subject nonce newest in_cohorts in_cohorts_from"},
    "Signed": {"signature": "payload key_id signature"},
    "JoinRequest": {
        "join": "federation role name signing_key certificate_request rows_at_least address made_at_unix_s"
    },
    "Admission": {"admission": "request_digest certificate authority coordinator_address", "roster": "roster"},
    "AdmissionFile": {"admission": "federation_key admission"},
    "SubmitQueryRequest": {"query": "query"},
    "SubmitQueryResponse": {"name": "query_id"},
    "WatchQueryRequest": {"request": "query_id cursor wait_s ends_only"},
    "WatchQueryResponse": {"status": "status", "work": "cursor", "total": "total first_chunk"},
    "ListQueriesRequest": {},
    "ListQueriesResponse": {"status": "queries"},
    "CancelQueryRequest": {"cancel": "cancel"},
    "CancelQueryResponse": {},
    "RetryQueryRequest": {"attempt": "retry"},
    "RetryQueryResponse": {},
    "FetchTotalRequest": {"request": "query_id"},
    "FetchTotalResponse": {"total": "total"},
    "FetchTotalChunkRequest": {"request": "query_id index"},
    "FetchTotalChunkResponse": {"total": "chunk"},
    "FetchRosterRequest": {},
    "FetchRosterResponse": {"roster": "roster", "clock": "server_time_unix_ms"},
    "FetchFeaturesRequest": {},
    "FetchFeaturesResponse": {"features": "parties coordinator", "roster": "roster"},
    "FetchAdmissionRequest": {},
    "FetchAdmissionResponse": {"admission": "admission"},
    "FetchWorkRequest": {"request": "cursor wait_s"},
    "Work": {
        "query": "query",
        "attempt": "attempt retry",
        "standing": "phase state chunks_held",
        "cohort": "cohort",
        "sharing": "sharing ready",
        "survivors": "survivors sealed_shares",
    },
    "FetchWorkResponse": {"work": "work cursor", "witness": "challenges"},
    "SubmitFeaturesRequest": {"features": "features"},
    "SubmitFeaturesResponse": {},
    "AskWitnessesRequest": {"witness": "challenge"},
    "AskWitnessesResponse": {},
    "SubmitWitnessRequest": {"witness": "witness more"},
    "SubmitWitnessResponse": {},
    "FetchWitnessesRequest": {"request": "nonce known"},
    "FetchWitnessesResponse": {"witness": "witnesses newest"},
    "SubmitAnswerRequest": {"acceptance": "acceptance", "answer": "refusal pending"},
    "SubmitAnswerResponse": {},
    "SubmitReadyRequest": {"answer": "ready", "sharing": "key_shares"},
    "SubmitReadyResponse": {},
    "UploadChunkRequest": {"upload": "query_id attempt chunk", "receipt": "receipt"},
    "UploadChunkResponse": {"work": "receipt_taken"},
    "SubmitReceiptRequest": {"receipt": "receipt"},
    "SubmitReceiptResponse": {},
    "SubmitUnmaskingRequest": {"survivors": "unmasking"},
    "SubmitUnmaskingResponse": {},
    "Rational": {"query": "numerator denominator"},
    "PaillierKey": {"query": "learner modulus not_before_unix_s not_after_unix_s subgroup"},
    "Subgroup": {"query": "generator order_bits"},
    "Encoding": {"query": "fraction_bits value_bits slot_bits"},
    "PlainDesign": {},
    "DpFeatDesign": {"query": "sensitive_feature epsilon_per_rado split further_features rounded_features"},
    "JointDesign": {"query": "sensitive_column share_sigma"},
    "FixedSupportDesign": {"query": "fraction norm_bound edge_sigma split"},
    "GaussianDesign": {"query": "norm_bound share_sigma fraction"},
    "RadosQuery": {"query": "rados plain dp_feat joint fixed_support gaussian"},
    "MomentsQuery": {"query": "norm_bound edge_multiplier share_sigma products_of_each_class"},
    "CategoryTest": {"query": "feature value"},
    "RealTest": {"query": "feature bound"},
    "AffineForm": {"query": "coordinates weights constant"},
    "ClippedForm": {"query": "form scale"},
    "LabelShare": {},
    "LabelSquare": {},
    "LabelExposure": {},
    "CountShare": {"query": "most"},
    "CountGain": {"query": "form scale centre reach is_loss most"},
    "CountDeviance": {"query": "centre most"},
    "LabelError": {"query": "form scale reach sort"},
    "Operands": {"query": "places"},
    "PredicateNode": {
        "query": "constant label_is_positive label_class flag equals at_least above non_negative clipped complement "
        "all_of any_of label_at_least label_above label_share label_exposure count_gain count_deviance count_share "
        "label_square label_error"
    },
    "LaplaceShare": {"query": "scale shares"},
    "LocalResponse": {"query": "epsilon"},
    "StatisticQuery": {"query": "nodes predicates share_sigma laplace local"},
    "GradientQuery": {"query": "loss theta clip share_sigma basis interval_weight class_weights"},
    "SealedSeed": {"seed": "party seed"},
    "Binding": {"seed": "seeds commitment", "query": "opening_key"},
    "HeldBack": {"query": "share part pieces piece"},
    "Persons": {"query": "parties"},
    "HatFunction": {"query": "coordinate left peak right"},
    "PointMass": {"query": "coordinate at"},
    "ProductFunction": {"query": "first second"},
    "MapTerm": {"query": "column hat point_mass product centre halvings"},
    "FeatureMap": {"query": "terms"},
    "Study": {"query": "purpose protocol_number organisation person_in_charge begins ends"},
    "Query": {
        "query": "federation learner nonce roster_version schema schema_digest rados moments statistic gradient "
        "encoding paillier_key delta max_rows max_parties cohort_min honest_parties created_at_unix_s "
        "not_after_unix_s answer_within_s prepare_within_s upload_within_s max_attempts features binding "
        "quorum_wait_s held_back feature_map purpose epoch noise_of_cohort persons study "
        "mask_neighbours training may_vanish",
    },
    "Training": {
        "query": "name estimator options schema_digest epsilon delta queries max_attempts begins_unix_s ends_unix_s"
    },
    "Retry": {"attempt": "query_id learner attempt"},
    "Cancel": {"cancel": "query_id learner"},
    "Total": {
        "cohort": "cohort",
        "receipt": "receipts",
        "total": "chunks ciphertexts",
        "sharing": "sharing key_shares",
        "survivors": "survivors unmaskings",
    },
    "PartyProgress": {"status": "party state code chunks rows", "acceptance": "acceptance"},
    "QueryStatus": {
        "status": "query_id attempt phase parties code detail remaining_s chunks_expected submitted_at_unix_s "
        "answering_ended_early"
    },
    "Member": {"roster": "role name signing_key certificate_san rows_at_least tls_key_hash"},
    "Roster": {
        "roster": "federation version issued_at_unix_s members not_after_unix_s coordinator_address former_addresses"
    },
    "Features": {"features": "federation party features version signed_at_unix_s schemas columns"},
}
