"""Kinds of queries, feature maps and predicates as messages. Reading one checks it against the schema."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares, NoiseShares
from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.predicates.evaluation import MOST_DEPTH, MOST_NODES
from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    CountDeviance,
    CountGain,
    CountShare,
    Equals,
    ErrorSort,
    Flag,
    FormCoordinates,
    LabelAbove,
    LabelAtLeast,
    LabelClass,
    LabelError,
    LabelExposure,
    LabelIs,
    LabelShare,
    LabelSquare,
    NonNegative,
    Not,
    Or,
    Predicate,
)
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.queries.kind import QueryKind
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import (
    Design,
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    dp_feat_design,
    joint_design,
    plain_design,
)
from dpcore.records.clipping import Basis, Clip
from dpcore.records.feature_map import FeatureMap, Term
from dpcore.records.features import Bound, Classes, EventTime, Target
from dpcore.records.losses import LossName
from dpcore.records.persons import Persons
from dpcore.records.schema import Schema
from rado.v1 import query_pb2
from wire.codec import Codec, Travels, rational_from_proto, rational_to_proto
from wire.errors import Code, WireError

# Predicates as messages: a table of distinct nodes, operands before the nodes that use them.
#
# A table has one canonical form: the post-order of a depth-first walk over the predicates, operands in order, each
# node where it is first needed. Reading refuses a table that writing would not produce.


def write_predicates(
    predicates: Sequence[Predicate], coordinates: FormCoordinates, message: query_pb2.StatisticQuery
) -> None:
    """Fill in `nodes` and `predicates` of the message. The predicates must be checked already.

    coordinates: of forms, by whose places they travel.
    """
    writer = _Writer(coordinates, message)
    message.predicates.extend([writer.place(predicate) for predicate in predicates])


def read_predicates(message: query_pb2.StatisticQuery, coordinates: FormCoordinates) -> tuple[Predicate, ...]:
    """The predicates of a message. Types are not checked here: the query that contains them checks them.

    Raises WireError(QUERY_INVALID) if the table is not in canonical form, is too deep or too large, or names a feature,
    value or coordinate that is not there.
    """
    nodes = read_nodes(message, coordinates)
    return tuple(nodes[place] for place in message.predicates)


def read_nodes(message: query_pb2.StatisticQuery, coordinates: FormCoordinates) -> list[Predicate]:
    """The expression of each node of the table, in its order. Raises as `read_predicates` does."""
    if len(message.nodes) > MOST_NODES:
        raise _invalid(f"A batch of predicates may have at most {MOST_NODES} nodes.")
    _check_form(message)
    reader = _Reader(coordinates)
    nodes: list[Predicate] = []
    for node in message.nodes:
        nodes.append(reader.predicate(node, nodes))
    return nodes


def _invalid(detail: str) -> WireError:
    return WireError(Code.QUERY_INVALID, detail)


_WITHOUT_FIELDS = {LabelShare: "label_share", LabelSquare: "label_square", LabelExposure: "label_exposure"}


_ERROR_SORTS: dict[ErrorSort, query_pb2.ErrorSort.ValueType] = {
    "over": query_pb2.ERROR_SORT_OVER,
    "under": query_pb2.ERROR_SORT_UNDER,
    "square": query_pb2.ERROR_SORT_SQUARE,
    "beyond": query_pb2.ERROR_SORT_BEYOND,
}


class _Writer:
    def __init__(self, coordinates: FormCoordinates, message: query_pb2.StatisticQuery) -> None:
        self._message, self._places = message, dict[Predicate, int]()
        schema, self._coordinates = coordinates.schema, coordinates
        self._numbers = {group.name: group for group in schema.numbers}
        self._features = {feature.name: place for place, feature in enumerate(schema.groups)}
        self._values = {
            feature.name: {value: place for place, value in enumerate(feature.values)} for feature in schema.categories
        }
        self._classes = schema.label.places if isinstance(schema.label, Classes) else {}

    def place(self, predicate: Predicate) -> int:
        """The index of a predicate in the table. Adds it if it is not there."""
        if predicate not in self._places:
            # Operands first: this order is part of the canonical form.
            node = self._node(predicate)
            self._places[predicate] = len(self._message.nodes)
            self._message.nodes.append(node)
        return self._places[predicate]

    def _node(self, predicate: Predicate) -> query_pb2.PredicateNode:
        node = query_pb2.PredicateNode()
        match predicate:
            case Not(part):
                node.complement = self.place(part)
            case And(parts):
                node.all_of.places.extend([self.place(part) for part in parts])
            case Or(parts):
                node.any_of.places.extend([self.place(part) for part in parts])
            case _:
                self._atom(predicate, node)
        return node

    def _atom(self, predicate: Predicate, node: query_pb2.PredicateNode) -> None:
        match predicate:
            case Constant(value):
                node.constant = value
            case Flag(feature):
                node.flag = self._features[feature]
            case Equals(feature, value):
                node.equals.feature, node.equals.value = self._features[feature], self._values[feature][value]
            case AtLeast(feature, bound):
                self._real(feature, bound, node.at_least)
            case Above(feature, bound):
                self._real(feature, bound, node.above)
            case NonNegative(form):
                self._form(form, node.non_negative)
            case Clipped(form, scale):
                self._form(form, node.clipped.form)
                node.clipped.scale = scale
            case _:
                self._label(predicate, node)

    def _label(self, predicate: Predicate, node: query_pb2.PredicateNode) -> None:
        match predicate:
            case LabelIs(positive):
                node.label_is_positive = positive
            case LabelClass(value):
                node.label_class = self._classes[value]
            case LabelAtLeast(bound):
                node.label_at_least.CopyFrom(rational_to_proto(bound))
            case LabelAbove(bound):
                node.label_above.CopyFrom(rational_to_proto(bound))
            case CountGain(form=form, scale=scale, centre=centre, reach=reach):
                self._form(form, node.count_gain.form)
                node.count_gain.scale = scale
                node.count_gain.centre.CopyFrom(rational_to_proto(centre))
                node.count_gain.reach.CopyFrom(rational_to_proto(reach))
                node.count_gain.is_loss = predicate.is_loss
                node.count_gain.most = predicate.most
            case CountDeviance(centre=centre):
                node.count_deviance.centre.CopyFrom(rational_to_proto(centre))
                node.count_deviance.most = predicate.most
            case CountShare(most=most):
                node.count_share.most = most
            case LabelError(form=form, scale=scale, reach=reach, sort=sort):
                self._form(form, node.label_error.form)
                node.label_error.scale = scale
                node.label_error.reach.CopyFrom(rational_to_proto(reach))
                node.label_error.sort = _ERROR_SORTS[sort]
            case LabelShare():
                getattr(node, _WITHOUT_FIELDS[type(predicate)]).SetInParent()
            case _:
                raise AssertionError(predicate)

    def _real(self, feature: str, bound: Bound, test: query_pb2.RealTest) -> None:
        test.feature = self._features[feature]
        test.bound.CopyFrom(rational_to_proto(self._numbers[feature].number(bound)))

    def _form(self, form: Affine, message: query_pb2.AffineForm) -> None:
        by_place = sorted((self._coordinates.place(name), weight) for name, weight in form.weights)
        message.coordinates.extend([place for place, _ in by_place])
        message.weights.extend([weight for _, weight in by_place])
        message.constant = form.constant


class _Reader:
    def __init__(self, coordinates: FormCoordinates) -> None:
        self._schema, self._coordinates = coordinates.schema, coordinates.names
        self._features = [group.name for group in self._schema.groups]
        self._values = {feature.name: feature.values for feature in self._schema.categories}
        self._numbers = {group.name: group for group in self._schema.numbers}
        of_event = isinstance(self._schema.label, EventTime)
        self._atoms: dict[str | None, Callable[[query_pb2.PredicateNode], Predicate]] = {
            "constant": lambda node: Constant(node.constant),
            "label_is_positive": lambda node: LabelIs(node.label_is_positive, "y.event" if of_event else ""),
            "label_class": lambda node: self._class(node.label_class),
            "label_at_least": lambda node: LabelAtLeast(rational_from_proto(node.label_at_least)),
            "label_above": lambda node: LabelAbove(rational_from_proto(node.label_above), "y.time" if of_event else ""),
            "label_share": lambda node: LabelShare(),  # noqa: ARG005  (it has no fields)
            "label_square": lambda node: LabelSquare(),  # noqa: ARG005  (it has no fields)
            "label_exposure": lambda node: LabelExposure(),  # noqa: ARG005  (it has no fields)
            "count_gain": lambda node: self._gain(node.count_gain),
            "count_deviance": lambda node: CountDeviance(
                node.count_deviance.most, rational_from_proto(node.count_deviance.centre)
            ),
            "count_share": lambda node: CountShare(node.count_share.most),
            "label_error": lambda node: self._error(node.label_error),
            "flag": lambda node: Flag(self._feature(node.flag)),
            "equals": lambda node: self._equals(node.equals),
            "at_least": lambda node: AtLeast(*self._real(node.at_least)),
            "above": lambda node: Above(*self._real(node.above)),
            "non_negative": lambda node: NonNegative(self._form(node.non_negative)),
            "clipped": lambda node: self._clipped(node.clipped),
        }

    def predicate(self, node: query_pb2.PredicateNode, earlier: Sequence[Predicate]) -> Predicate:
        """The predicate of a node. The places of its operands must be checked already."""
        match node.WhichOneof("node"):
            case "complement":
                return Not(earlier[node.complement])
            case "all_of":
                return And(tuple(earlier[place] for place in node.all_of.places))
            case "any_of":
                return Or(tuple(earlier[place] for place in node.any_of.places))
            case name if name in self._atoms:
                return self._atoms[name](node)
            case _:
                raise _invalid("A node of a predicate has a kind that this version does not know.")

    def _feature(self, place: int) -> str:
        if place >= len(self._features):
            raise _invalid(f"A predicate names feature {place}, but the schema has {len(self._features)}.")
        return self._features[place]

    def _class(self, place: int) -> LabelClass:
        label = self._schema.label
        values = label.values if isinstance(label, Classes) else ()
        if place >= len(values):
            raise _invalid(f"A predicate names class {place}, and the schema's label has {len(values)}.")
        return LabelClass(values[place])

    def _real(self, test: query_pb2.RealTest) -> tuple[str, Bound]:
        name, number = self._feature(test.feature), rational_from_proto(test.bound)
        group = self._numbers.get(name)
        try:
            return name, number if group is None else group.bound(number)
        except ValueError as error:
            raise _invalid(f"A predicate compares {name!r} with {number}: {error}.") from error

    def _equals(self, test: query_pb2.CategoryTest) -> Equals:
        name = self._feature(test.feature)
        values = self._values.get(name, ())
        if test.value >= len(values):
            raise _invalid(f"A predicate names value {test.value} of {name!r}, which has no such value.")
        return Equals(name, values[test.value])

    def _clipped(self, clipped: query_pb2.ClippedForm) -> Clipped:
        if not clipped.HasField("form"):
            raise _invalid("A clipped form has no form.")
        return Clipped(self._form(clipped.form), clipped.scale)

    def _gain(self, gain: query_pb2.CountGain) -> CountGain:
        if not gain.HasField("form"):
            raise _invalid("A gain of a count has no form.")
        centre, reach = rational_from_proto(gain.centre), rational_from_proto(gain.reach)
        return CountGain(gain.most, centre, self._form(gain.form), gain.scale, reach, gain.is_loss)

    def _error(self, error: query_pb2.LabelError) -> LabelError:
        sorts = {value: name for name, value in _ERROR_SORTS.items()}
        if not error.HasField("form") or error.sort not in sorts:
            raise _invalid("An error of the label has no form, or is of an unknown sort.")
        return LabelError(self._form(error.form), error.scale, rational_from_proto(error.reach), sorts[error.sort])

    def _form(self, form: query_pb2.AffineForm) -> Affine:
        places, names = list(form.coordinates), self._coordinates
        if len(places) != len(form.weights) or places != sorted(set(places)) or 0 in form.weights:
            raise _invalid("A form's coordinates must ascend, and each must have a non-zero weight.")
        if places and places[-1] >= len(names):
            raise _invalid(f"A form names coordinate {places[-1]}, but there are {len(names)}.")
        return Affine(
            tuple((names[place], weight) for place, weight in zip(places, form.weights, strict=True)), form.constant
        )


def _operands(node: query_pb2.PredicateNode) -> list[int]:
    match node.WhichOneof("node"):
        case "complement":
            return [node.complement]
        case "all_of":
            return list(node.all_of.places)
        case "any_of":
            return list(node.any_of.places)
        case _:
            return []


def _check_form(message: query_pb2.StatisticQuery) -> None:
    """Check that the table is in canonical form and that its trees, written out, are not too deep or too large.

    Nodes may be shared, so a short table could represent a tree of exponential size.
    """
    operands = [_operands(node) for node in message.nodes]
    depths: list[int] = []
    sizes: list[int] = []
    seen: set[bytes] = set()
    for place, (node, parts) in enumerate(zip(message.nodes, operands, strict=True)):
        if any(part >= place for part in parts):
            raise _invalid("A node of a predicate uses a node that is not before it.")
        depths.append(1 + max((depths[part] for part in parts), default=0))
        sizes.append(1 + sum(sizes[part] for part in parts))
        if depths[-1] > MOST_DEPTH or sizes[-1] > MOST_NODES:
            raise _invalid(f"A predicate may be at most {MOST_DEPTH} deep and have at most {MOST_NODES} nodes.")
        seen.add(node.SerializeToString(deterministic=True))
    if len(seen) < len(operands):
        raise _invalid("A node of a predicate occurs twice in the table.")
    if any(place >= len(operands) for place in message.predicates):
        raise _invalid("A predicate refers to a node that is not in the table.")
    if _walk(operands, message.predicates) != list(range(len(operands))):
        raise _invalid("The nodes are not in the order of a depth-first walk over the predicates.")


def _walk(operands: Sequence[Sequence[int]], roots: Sequence[int]) -> list[int]:
    """Indices of nodes in the order in which a depth-first walk finishes them."""
    done: dict[int, None] = {}
    for root in roots:
        stack = [(root, 0)]
        while stack:
            place, part = stack.pop()
            if place in done:
                continue
            if part < len(operands[place]):
                stack += [(place, part + 1), (operands[place][part], 0)]
            else:
                done[place] = None
    return list(done)


_LOSSES: dict[LossName, query_pb2.Loss.ValueType] = {
    "logistic": query_pb2.LOSS_LOGISTIC,
    "hinge": query_pb2.LOSS_HINGE,
    "squared": query_pb2.LOSS_SQUARED,
    "poisson": query_pb2.LOSS_POISSON,
    "hazards": query_pb2.LOSS_HAZARDS,
}


AnyKind = MomentsQuery | StatisticQuery | GradientQuery | RadosQuery
"""All kinds that travel."""
KIND_FIELDS = ("rados", "moments", "statistic", "gradient")
"""The fields of a query that hold its kind, one of them."""
_TERMS = Codec(
    Term,
    query_pb2.MapTerm,
    Travels(unknown="This version does not know a function of the feature map.", code=Code.QUERY_INVALID),
)


def feature_map_to_proto(feature_map: FeatureMap) -> query_pb2.FeatureMap:
    """The message that travels in a query."""
    return query_pb2.FeatureMap(terms=map(_TERMS.write, feature_map.terms))


def feature_map_from_proto(message: query_pb2.FeatureMap, schema: Schema) -> FeatureMap:
    """Raises WireError(QUERY_INVALID) if a term is out of range or does not fit the schema."""
    try:
        found = FeatureMap(tuple(map(_TERMS.read, message.terms)), schema.bias)
        found.check(schema)
    except (PlanError, SchemaError) as error:
        raise WireError(Code.QUERY_INVALID, str(error)) from error
    return found


def write_kind(kind: AnyKind, message: query_pb2.Query) -> None:
    """Set the field of `message` that represents the kind."""
    match kind:
        case MomentsQuery():
            message.moments.norm_bound.CopyFrom(rational_to_proto(kind.clip.norm_bound))
            message.moments.edge_multiplier = kind.edge_multiplier
            message.moments.share_sigma = kind.share_sigma
            message.moments.products_of_each_class = has_class_products(kind)
        case RadosQuery():
            message.rados.rados = kind.rados
            _write_design(kind.design, message.rados)
        case StatisticQuery():
            coordinates = FormCoordinates(kind.schema, kind.feature_map)
            write_predicates(kind.predicates, coordinates, message.statistic)
            _write_noise(kind.noise, message.statistic)
        case GradientQuery():
            message.gradient.loss = _LOSSES[kind.loss]
            message.gradient.theta.extend(kind.theta)
            message.gradient.clip.CopyFrom(rational_to_proto(kind.clip))
            message.gradient.share_sigma = kind.share_sigma
            if isinstance(kind, HazardGradientQuery):
                message.gradient.interval_weight = kind.interval_weight
            message.gradient.class_weights.extend(kind.class_weights)
            if kind.basis is not None:
                message.gradient.basis.extend([entry for row in kind.basis.entries for entry in row])


def has_class_weights(kind: QueryKind) -> bool:
    """Whether the classes of its label are weighted, which has a feature of its own."""
    return isinstance(kind, GradientQuery) and bool(kind.class_weights)


def has_class_products(kind: QueryKind) -> bool:
    """Whether the kind is about moments with products of each class."""
    return isinstance(kind, ClassMomentsQuery) and kind.products_of_each_class


def kind_bytes(kind: AnyKind) -> bytes:
    """The kind alone, as it travels in a query. Equal kinds have equal bytes."""
    message = query_pb2.Query()
    write_kind(kind, message)
    return message.SerializeToString(deterministic=True)


def read_kind(message: query_pb2.Query, schema: Schema, feature_map: FeatureMap | None = None) -> AnyKind:
    """feature_map: that of the query, which fits the schema.

    Raises WireError(QUERY_INVALID), or a RadofedError that names the value out of range.
    """
    kind = _read_kind(message, schema, feature_map)
    if message.HasField("persons"):
        kind = kind.of_persons(Persons(message.persons.parties))
    if not message.noise_of_cohort:
        return kind
    return kind.following(Cohorts(message.cohort_min, message.honest_parties, message.max_parties))


def _read_kind(message: query_pb2.Query, schema: Schema, feature_map: FeatureMap | None) -> AnyKind:
    match message.WhichOneof("kind"):
        case "moments":
            moments = message.moments
            clip = Clip(rational_from_proto(moments.norm_bound), schema.bias)
            weighted = schema.weight is not None
            kind = MomentsQuery(clip, moments.edge_multiplier, moments.share_sigma, weighted=weighted)
            # The schema says what a sum is about: the same message asks for the sums of each class of its label.
            each = moments.products_of_each_class
            if schema.label.classes:
                return ClassMomentsQuery.of(kind, schema.label, products_of_each_class=each)
            if each:
                raise WireError(Code.QUERY_INVALID, "Only a label of several classes has products of each class.")
            return NumberMomentsQuery.of(kind, schema.label) if schema.label.coding.has_value else kind
        case "rados":
            return RadosQuery(message.rados.rados, _read_design(message.rados, schema))
        case "statistic":
            predicates = read_predicates(message.statistic, FormCoordinates(schema, feature_map))
            noise = _read_noise(message.statistic, message.honest_parties)
            return StatisticQuery(predicates, schema, noise, feature_map)
        case "gradient":
            d = schema.d if feature_map is None else feature_map.d
            return replace(_read_gradient(message.gradient, d, schema.label), weighted=schema.weight is not None)
        case _:
            raise WireError(Code.QUERY_INVALID, "This version does not know the query's kind.")


def _write_noise(noise: NoiseShares | LocalResponse, message: query_pb2.StatisticQuery) -> None:
    match noise:
        case GaussianShares(share_sigma):
            message.share_sigma = share_sigma
        case LaplaceShares(scale, shares):
            message.laplace.scale.CopyFrom(rational_to_proto(scale))
            message.laplace.shares = shares
        case LocalResponse(epsilon):
            message.local.epsilon.CopyFrom(rational_to_proto(epsilon))


def _read_noise(message: query_pb2.StatisticQuery, honest_parties: int) -> NoiseShares | LocalResponse:
    match message.WhichOneof("noise"):
        case "share_sigma":
            return GaussianShares(message.share_sigma)
        case "laplace":
            if message.laplace.shares != honest_parties:
                raise WireError(Code.QUERY_INVALID, "The number of Laplace shares must equal honest_parties.")
            return LaplaceShares(rational_from_proto(message.laplace.scale), message.laplace.shares)
        case "local":
            return LocalResponse(rational_from_proto(message.local.epsilon))
        case _:
            raise WireError(Code.QUERY_INVALID, "This version does not know the query's noise.")


def _read_gradient(message: query_pb2.GradientQuery, d: int, label: Target) -> GradientQuery:
    losses = {value: name for name, value in _LOSSES.items()}
    if message.loss not in losses:
        raise WireError(Code.QUERY_INVALID, "This version does not know the query's loss.")
    fields = (
        losses[message.loss],
        tuple(message.theta),
        rational_from_proto(message.clip),
        message.share_sigma,
        _read_basis(list(message.basis), d),
    )
    kind: GradientQuery
    if label.classes:
        kind = ClassGradientQuery(*fields, label.classes)
    elif label.coding.is_measured:
        kind = NumberGradientQuery(*fields, label.coding)
    elif label.coding.intervals:
        kind = HazardGradientQuery(*fields, label.coding.intervals, message.interval_weight)
    else:
        kind = GradientQuery(*fields)
    if message.class_weights:
        kind = replace(kind, class_weights=tuple(message.class_weights))
    if message.interval_weight and not isinstance(kind, HazardGradientQuery):
        raise WireError(Code.QUERY_INVALID, "Only a gradient of hazards has a weight for intervals.")
    kind.length(d)
    return kind


def _read_basis(entries: list[int], d: int) -> Basis | None:
    if not entries:
        return None
    if len(entries) != d * d:
        raise WireError(Code.QUERY_INVALID, f"A basis must have {d * d} entries for records of {d} coordinates.")
    return Basis(tuple(tuple(entries[start : start + d]) for start in range(0, d * d, d)))


def _write_design(design: Design, message: query_pb2.RadosQuery) -> None:
    match design:
        case PlainDesign():
            message.plain.SetInParent()
        case DpFeatDesign():
            _require_local(design.split)
            message.dp_feat.sensitive_feature = design.names[0]
            message.dp_feat.further_features.extend(design.names[1:])
            message.dp_feat.rounded_features.extend(f.name for f in design.sensitive if f.rounded)
            if design.epsilon_per_rado is not None:
                message.dp_feat.epsilon_per_rado.CopyFrom(rational_to_proto(design.epsilon_per_rado))
            message.dp_feat.split = query_pb2.SPLIT_LOCAL
        case JointDesign():
            message.joint.sensitive_column = design.column
            message.joint.share_sigma = design.share_sigma
        case FixedSupportDesign():
            _require_local(design.split)
            message.fixed_support.fraction.CopyFrom(rational_to_proto(design.fraction))
            message.fixed_support.norm_bound.CopyFrom(rational_to_proto(design.clip.norm_bound))
            message.fixed_support.edge_sigma = design.edge_sigma
            message.fixed_support.split = query_pb2.SPLIT_LOCAL
        case GaussianDesign():
            message.gaussian.norm_bound.CopyFrom(rational_to_proto(design.clip.norm_bound))
            message.gaussian.share_sigma = design.share_sigma
            if design.fraction is not None:
                message.gaussian.fraction.CopyFrom(rational_to_proto(design.fraction))


def _read_design(message: query_pb2.RadosQuery, schema: Schema) -> Design:
    match message.WhichOneof("design"):
        case "plain":
            return plain_design(schema)
        case "dp_feat":
            return _read_dp_feat(message.dp_feat, schema)
        case "joint":
            return joint_design(schema, message.joint.sensitive_column, message.joint.share_sigma)
        case "fixed_support":
            fixed = message.fixed_support
            _check_split(fixed.split)
            clip = Clip(rational_from_proto(fixed.norm_bound), schema.bias)
            return FixedSupportDesign(rational_from_proto(fixed.fraction), clip, fixed.edge_sigma)
        case "gaussian":
            gaussian = message.gaussian
            fraction = rational_from_proto(gaussian.fraction) if gaussian.HasField("fraction") else None
            clip = Clip(rational_from_proto(gaussian.norm_bound), schema.bias)
            return GaussianDesign(clip, gaussian.share_sigma, fraction)
        case _:
            raise WireError(Code.QUERY_INVALID, "This version does not know the query's design.")


def _read_dp_feat(message: query_pb2.DpFeatDesign, schema: Schema) -> DpFeatDesign:
    _check_split(message.split)
    names = (message.sensitive_feature, *message.further_features)
    design = dp_feat_design(
        schema,
        names,
        rational_from_proto(message.epsilon_per_rado) if message.HasField("epsilon_per_rado") else None,
        rounded=message.rounded_features,
    )
    # A design has exactly one form on the wire.
    _check_order(names, design.names)
    _check_order(message.rounded_features, tuple(f.name for f in design.sensitive if f.rounded))
    return design


def _check_order(given: Sequence[str], canonical: tuple[str, ...]) -> None:
    if tuple(given) != canonical:
        raise WireError(Code.QUERY_INVALID, "Sensitive features must be in the order of their coordinates, each once.")


def _check_split(split: "query_pb2.Split.ValueType") -> None:
    if split != query_pb2.SPLIT_LOCAL:
        raise WireError(Code.QUERY_INVALID, "Only split = local is supported.")


def _require_local(split: str) -> None:
    if split != "local":
        raise ConfigurationError(f"split is {split!r}, which only a simulation supports: use split = local in a query")
