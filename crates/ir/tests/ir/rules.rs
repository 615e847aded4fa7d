//! What a model's author is told about a wrong shape: the op, the layer and both shapes.

use memfit_ir::op::*;
use memfit_ir::{DType, Graph, Op, TensorType};

/// `op` in the layer "net/1" reads inputs of these types, written as in text form.
fn check(op: Op, inputs: &[&str], expected: &str) {
    let mut text: String = inputs.iter().enumerate().map(|(i, ty)| format!("%{i} = input \"{i}\" : {ty}\n")).collect();
    text.push('\n');
    let mut graph: Graph = memfit_ir::text::parse(&text).unwrap();
    let values: Vec<_> = graph.inputs().map(|(_, v)| v).collect();
    let error = graph.push(op, &values, "net/1").unwrap_err();
    assert_eq!(error.to_string(), expected);
}

const CONV: Conv = Conv { stride: [1, 1], pad: Pad2::NONE, dilation: [1, 1], groups: 1 };
const POOL: Window = Window { size: [2, 2], stride: [2, 2], pad: Pad2::NONE };

#[test]
fn number_of_inputs() {
    check(Op::Binary(Binary::Add), &["f32[2]"], "add in layer \"net/1\": takes 2 inputs, but was given 1");
    check(Op::Concat(0), &[], "concat in layer \"net/1\": needs at least one input");
    let sgd = Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    check(
        Op::Update(sgd),
        &["f32[2]", "f32[2]", "f32[]", "i32[4]"],
        "sgd in layer \"net/1\": takes 5 inputs, but was given 4",
    );
}

#[test]
fn sources() {
    let state = |init| {
        let (name, class) = ("w".to_string(), StateClass::Param);
        Op::State(State { name, class, dtype: DType::F32, shape: [2].into(), init })
    };
    check(
        state(Init::Normal { std: -1.0 }),
        &[],
        "state in layer \"net/1\": the initial value Normal { std: -1.0 } is not a finite number",
    );
    check(
        state(Init::Constant(f32::NAN)),
        &[],
        "state in layer \"net/1\": the initial value Constant(NaN) is not a finite number",
    );
}

#[test]
fn elementwise() {
    check(
        Op::Binary(Binary::Add),
        &["f32[2,3]", "f32[2,4]"],
        "add in layer \"net/1\": the shapes [2,3] and [2,4] do not broadcast together",
    );
    check(
        Op::Binary(Binary::Mul),
        &["f32[2]", "f16[2]"],
        "mul in layer \"net/1\": the types f32[2] and f16[2] differ; add a cast",
    );
    check(
        Op::Binary(Binary::Div),
        &["i32[2]", "i32[2]"],
        "div in layer \"net/1\": cannot work on i32 tensors (i32[2] and i32[2]); add a cast",
    );
    check(
        Op::Compare(Compare::Lt),
        &["f32[2,3]", "f32[2]"],
        "lt in layer \"net/1\": the shapes [2,3] and [2] do not broadcast together",
    );
    check(
        Op::Select,
        &["u8[3]", "f32[2]", "f32[2]"],
        "select in layer \"net/1\": the condition u8[3] and the choices f32[2] and f32[2] do not broadcast together",
    );
    check(
        Op::Unary(Unary::Exp),
        &["i32[2]"],
        "exp in layer \"net/1\": needs a float tensor, but was given i32[2]; add a cast",
    );
    check(
        Op::Unary(Unary::LeakyRelu(-0.5)),
        &["f32[2]"],
        "leaky_relu in layer \"net/1\": the slope must not be negative, but is -0.5",
    );
    check(
        Op::UnaryGrad(Unary::Relu),
        &["f32[2]", "f32[3]"],
        "relu_grad in layer \"net/1\": the saved value is f32[2], but the gradient is f32[3]; they must be equal",
    );
    let dropout = |rate| Op::Dropout(Dropout { rate, stream: 0 });
    check(
        dropout(1.0),
        &["f32[2]", "i32[4]"],
        "dropout in layer \"net/1\": the rate must be at least 0 and less than 1, but is 1",
    );
    check(dropout(0.5), &["f32[2]", "i32[2]"], "dropout in layer \"net/1\": the clock must be i32[4], but is i32[2]");
}

#[test]
fn bits_are_masks_and_nothing_else() {
    let types = |texts: &[&str]| -> Vec<TensorType> {
        let line = |t: &&str| format!("%0 = input \"x\" : f32{}", &t[t.find('[').unwrap()..]);
        let shape = |t: &&str| memfit_ir::text::parse(&line(t)).unwrap().ty(memfit_ir::ValueId(0)).shape.clone();
        texts
            .iter()
            .map(|t| TensorType::new(DType::from_name(t.split('[').next().unwrap()).unwrap(), shape(t)))
            .collect()
    };
    let rule = |op: Op, given: &[&str]| {
        let given = types(given);
        memfit_ir::infer::infer(&op, &given.iter().collect::<Vec<_>>()).map_err(|e| e.0)
    };
    let relu = Unary::Relu;
    assert_eq!(rule(Op::Mask(relu), &["bf16[3,5]"]), Ok(types(&["bit[3,5]"])));
    assert_eq!(rule(Op::MaskGrad(relu), &["bit[3,5]", "f16[3,5]"]), Ok(types(&["f16[3,5]"])));
    assert_eq!(rule(Op::Reshape([15].into()), &["bit[3,5]"]), Ok(types(&["bit[15]"])));
    let refused = |op: Op, given: &[&str], why: &str| assert_eq!(rule(op, given), Err(why.to_string()));
    refused(Op::Mask(Unary::Tanh), &["f32[2]"], "the gradient of tanh reads more than one bit");
    refused(Op::MaskGrad(relu), &["u8[2]", "f32[2]"], "the mask must be bit[2], but is u8[2]; mask makes one");
    refused(Op::MaskGrad(relu), &["bit[1]", "f32[2]"], "the mask must be bit[2], but is bit[1]; mask makes one");
    refused(Op::Cast(DType::F32), &["bit[2]"], "cannot read bit[2]; only mask_grad reads bits");
    refused(Op::Transpose(vec![1, 0]), &["bit[2,3]"], "cannot read bit[2,3]; only mask_grad reads bits");
    refused(Op::Binary(Binary::Add), &["bit[2]", "bit[2]"], "cannot read bit[2]; only mask_grad reads bits");
    refused(Op::Cast(DType::Bit), &["f32[2]"], "cannot make bit[2]; only mask makes bits");
    let input = Op::Input(Input { name: "x".into(), dtype: DType::Bit, shape: [2].into() });
    refused(input, &[], "cannot make bit[2]; only mask makes bits");
}

#[test]
fn a_byte_holds_eight_bits() {
    for (elements, bytes) in [(0, 0), (1, 1), (8, 1), (9, 2), (64, 8), (65, 9)] {
        assert_eq!(TensorType::new(DType::Bit, [elements]).bytes(), bytes, "{elements} bits");
    }
}

#[test]
fn reduce_and_layout() {
    let sum = |axes: &[usize]| Op::Reduce(Reduce { kind: ReduceKind::Sum, axes: axes.to_vec(), keep: false });
    check(
        sum(&[1, 0]),
        &["f32[2,3]"],
        "reduce_sum in layer \"net/1\": the axes [1, 0] must ascend and be axes of f32[2,3]",
    );
    check(sum(&[0]), &["f32[0,3]"], "reduce_sum in layer \"net/1\": cannot reduce over an empty axis of f32[0,3]");
    check(
        Op::Reshape([2, 4].into()),
        &["f32[2,3]"],
        "reshape in layer \"net/1\": f32[2,3] has 6 elements, but [2,4] has 8",
    );
    check(
        Op::Transpose(vec![0, 0]),
        &["f32[2,3]"],
        "transpose in layer \"net/1\": [0, 0] is not an order of the 2 axes of f32[2,3]",
    );
    check(
        Op::Slice(Slice { start: vec![0, 2], stop: vec![2, 4] }),
        &["f32[2,3]"],
        "slice in layer \"net/1\": start [0, 2] and stop [2, 4] do not lie inside f32[2,3]",
    );
    check(
        Op::Concat(1),
        &["f32[2,3]", "f32[3,3]"],
        "concat in layer \"net/1\": f32[2,3] and f32[3,3] differ besides axis 1",
    );
    check(Op::Pad(vec![(1, 1)]), &["f32[2,3]"], "pad in layer \"net/1\": 1 pairs of padding were given for f32[2,3]");
    check(
        Op::Broadcast([2, 4].into()),
        &["f32[2,3]"],
        "broadcast in layer \"net/1\": f32[2,3] does not broadcast to [2,4]",
    );
}

#[test]
fn gather() {
    check(Op::Gather, &["f32[10,4]", "f32[2]"], "gather in layer \"net/1\": the ids must be i32, but are f32[2]");
    check(
        Op::GatherGrad(GatherGrad { rows: 10 }),
        &["i32[2]", "f32[3,4]"],
        "gather_grad in layer \"net/1\": the ids are i32[2], but the gradient is f32[3,4]",
    );
}

#[test]
fn matmul() {
    let plain = MatMul { transpose_a: false, transpose_b: false };
    check(
        Op::MatMul(MatMul { transpose_b: true, ..plain }),
        &["f32[2,3]", "f32[3,4]"],
        "matmul in layer \"net/1\": the inner extents 3 and 4 differ: [2,3] times [3,4] transposed",
    );
    check(
        Op::MatMul(plain),
        &["f32[5,2,3]", "f32[6,3,4]"],
        "matmul in layer \"net/1\": the batch axes of [5,2,3] and [6,3,4] differ",
    );
    check(
        Op::MatMul(plain),
        &["f32[2,3]", "f32[3]"],
        "matmul in layer \"net/1\": needs at least 2 axes on both sides, but was given [2,3] and [3]",
    );
}

#[test]
fn convolution() {
    check(
        Op::Conv(CONV),
        &["f32[1,8,8,4]", "f32[3,3,3,16]"],
        "conv2d in layer \"net/1\": the filter [3,3,3,16] reads 3 channels a group, but the image [1,8,8,4] has 4 in 1 \
         groups",
    );
    check(
        Op::Conv(CONV),
        &["f32[1,2,2,3]", "f32[3,3,3,16]"],
        "conv2d in layer \"net/1\": a window of 3x3 with dilation 1x1 does not fit into the padded image of 2x2",
    );
    check(
        Op::Conv(Conv { groups: 2, ..CONV }),
        &["f32[1,8,8,3]", "f32[3,3,3,16]"],
        "conv2d in layer \"net/1\": 2 groups do not divide the 3 channels in and 16 channels out",
    );
    check(
        Op::Conv(Conv { stride: [1, 0], ..CONV }),
        &["f32[1,8,8,3]", "f32[3,3,3,16]"],
        "conv2d in layer \"net/1\": the stride must be at least 1, but is 1x0",
    );
    check(
        Op::Conv(Conv { dilation: [1 << 21, 1], ..CONV }),
        &["f32[1,8,8,3]", "f32[3,3,3,16]"],
        "conv2d in layer \"net/1\": the dilation 2097152 is larger than the limit of 1048576",
    );
    check(
        Op::ConvTranspose(ConvTranspose { conv: CONV, size: [8, 8] }),
        &["f32[1,8,8,16]", "f32[3,3,3,16]"],
        "conv2d_transpose in layer \"net/1\": an output of 8x8 would come from an image of 6x6, but was given [1,8,8,16]",
    );
    check(
        Op::ConvFilter(ConvFilter { conv: CONV, size: [3, 3] }),
        &["f32[1,8,8,3]", "f32[1,8,8,16]"],
        "conv2d_filter in layer \"net/1\": the image [1,8,8,3] gives 6x6, but the gradient is [1,8,8,16]",
    );
}

#[test]
fn attention() {
    let plain = Attention { causal: false, scale: 1.0 };
    check(
        Op::Attention(plain),
        &["f32[1,5,2,8]"],
        "attention in layer \"net/1\": qkv must have 5 axes, but is f32[1,5,2,8]",
    );
    check(
        Op::Attention(Attention { causal: true, ..plain }),
        &["f32[1,5,2,3,8]"],
        "attention in layer \"net/1\": qkv must be batch, sequence, 3, heads, dim, but is [1,5,2,3,8]",
    );
    check(
        Op::Attention(plain),
        &["f32[1,0,3,2,8]"],
        "attention in layer \"net/1\": an empty sequence or dim in qkv [1,0,3,2,8]",
    );
    check(
        Op::AttentionGrad(plain),
        &["f32[1,5,3,2,8]", "f32[1,5,2,8]", "f32[1,5,2]", "f32[1,5,2,8]"],
        "attention_grad in layer \"net/1\": lse must be f32[1,2,5], but is f32[1,5,2]",
    );
}

#[test]
fn windows() {
    check(
        Op::MaxPool(Window { size: [17, 16], ..POOL }),
        &["f32[1,32,32,3]"],
        "max_pool in layer \"net/1\": a window of 17x16 has more than 256 positions",
    );
    check(
        Op::AvgPool(Window { pad: Pad2::all(2), ..POOL }),
        &["f32[1,8,8,3]"],
        "avg_pool in layer \"net/1\": the padding must be smaller than the window of 2x2",
    );
    check(
        Op::AvgPool(POOL),
        &["f32[8,8,3]"],
        "avg_pool in layer \"net/1\": the image must have 4 axes, but is f32[8,8,3]",
    );
    let grad = WindowGrad { window: POOL, size: [8, 8] };
    check(
        Op::MaxPoolGrad(grad),
        &["u8[1,4,4,3]", "f32[1,4,5,3]"],
        "max_pool_grad in layer \"net/1\": the index is u8[1,4,4,3], but the gradient is f32[1,4,5,3]",
    );
    check(
        Op::AvgPoolGrad(grad),
        &["f32[1,5,5,3]"],
        "avg_pool_grad in layer \"net/1\": an image of 8x8 gives [1, 4, 4, 3], but the gradient is [1,5,5,3]",
    );
    let up = |factor| Upsample { mode: UpsampleMode::Nearest, factor };
    check(
        Op::Upsample(up([0, 2])),
        &["f32[1,4,4,3]"],
        "upsample in layer \"net/1\": the factor must be at least 1, but is 0x2",
    );
    check(
        Op::UpsampleGrad(up([2, 3])),
        &["f32[1,4,4,3]"],
        "upsample_grad in layer \"net/1\": the factor 2x3 does not divide [1,4,4,3]",
    );
}

#[test]
fn norms() {
    let eps = Eps(1e-5);
    check(
        Op::BatchStats,
        &["f32[0,3]"],
        "batch_stats in layer \"net/1\": the input must have at least one axis and no empty one, but is f32[0,3]",
    );
    check(
        Op::BatchApply(eps),
        &["f32[2,3]", "f32[3]", "f32[3]", "f32[4]", "f32[3]"],
        "batch_apply in layer \"net/1\": scale must be f32[3] for the input [2,3], but is f32[4]",
    );
    check(
        Op::BatchGradReduce(eps),
        &["f32[2,3]", "f32[3]", "f32[3]", "f32[3,3]"],
        "batch_grad_reduce in layer \"net/1\": the gradient must be f32[2,3], but is f32[3,3]",
    );
    check(
        Op::BatchGradInput(BatchGradInput { eps: 1e-5, batch_stats: true }),
        &["f32[2,3]", "f32[3]", "f32[3]", "f32[3]", "f32[2,3]", "f32[3]", "f32[2]"],
        "batch_grad_input in layer \"net/1\": dbias must be f32[3] for the input [2,3], but is f32[2]",
    );
    check(
        Op::BatchUpdate(BatchUpdate { momentum: 0.9 }),
        &["f32[3]", "f32[3]", "f32[3]", "f32[2]"],
        "batch_update in layer \"net/1\": var must be f32[3] for the input [3], but is f32[2]",
    );
    check(
        Op::LayerNorm(Eps(-1.0)),
        &["f32[2,3]", "f32[3]", "f32[3]"],
        "layer_norm in layer \"net/1\": eps must not be negative, but is -1",
    );
    check(
        Op::LayerNormGrad,
        &["f32[2,3]", "f32[2]", "f32[3]", "f32[3]", "f32[2,3]"],
        "layer_norm_grad in layer \"net/1\": rstd must be f32[2], but is f32[3]",
    );
    check(
        Op::RmsNorm(eps),
        &["f32[2,3]", "f32[2]"],
        "rms_norm in layer \"net/1\": scale must be f32[3] for the input [2,3], but is f32[2]",
    );
    check(
        Op::GroupNorm(GroupNorm { groups: 4, eps: 1e-5 }),
        &["f32[2,8,6]", "f32[6]", "f32[6]"],
        "group_norm in layer \"net/1\": 4 groups do not divide the 6 channels of [2,8,6]",
    );
    check(
        Op::GroupNormGrad(2),
        &["f32[2,8,6]", "f32[2,3]", "f32[2,2]", "f32[6]", "f32[2,8,6]"],
        "group_norm_grad in layer \"net/1\": mean must be f32[2,2], but is f32[2,3]",
    );
}

#[test]
fn softmax_and_losses() {
    check(
        Op::Softmax(Softmax { log: true }),
        &["f32[]"],
        "log_softmax in layer \"net/1\": the input must have at least one axis and no empty one, but is f32[]",
    );
    check(
        Op::SoftmaxGrad(Softmax { log: false }),
        &["f32[2,3]", "f32[2,4]"],
        "softmax_grad in layer \"net/1\": the gradient must be f32[2,3], but is f32[2,4]",
    );
    let plain = CrossEntropy { smoothing: 0.0 };
    check(
        Op::CrossEntropy(plain),
        &["f32[2,10]", "i32[3]"],
        "cross_entropy in layer \"net/1\": labels for [2,10] must be i32[2] classes below 10 or f32[2,10], but are i32[3]",
    );
    check(
        Op::CrossEntropyGrad(plain),
        &["f32[2,10]", "i32[2]", "f32[2]", "f32[3]"],
        "cross_entropy_grad in layer \"net/1\": the gradient must be f32[2], but is f32[3]",
    );
}

#[test]
fn updates() {
    let adam = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: true };
    check(
        Op::Update(adam),
        &["f32[2]", "f32[2]", "f32[2]", "f32[3]", "f32[]", "i32[4]"],
        "adamw in layer \"net/1\": the slot is f32[3], but the parameter is f32[2]",
    );
    check(
        Op::Update(Update::Adagrad { eps: 1e-8 }),
        &["f32[2]", "f32[2]", "f32[2]", "f32[1]", "i32[4]"],
        "adagrad in layer \"net/1\": the learning rate must be f32[], but is f32[1]",
    );
    check(
        Op::Update(Update::Adagrad { eps: 1e-8 }),
        &["f32[2]", "f32[2]", "f32[2]", "f32[]", "i32[4]", "f32[]"],
        "adagrad in layer \"net/1\": the gate must be u8[], but is f32[]",
    );
    check(
        Op::Update(Update::Adagrad { eps: 1e-8 }),
        &["f32[2]", "f32[2]", "f32[2]", "f32[]", "i32[4]", "u8[]", "u8[]"],
        "adagrad in layer \"net/1\": takes 5 inputs, but was given 7",
    );
    check(
        Op::BatchUpdate(BatchUpdate { momentum: 0.9 }),
        &["f32[3]", "f32[3]", "f32[3]", "f32[3]", "u8[3]"],
        "batch_update in layer \"net/1\": the gate must be u8[], but is u8[3]",
    );
}

#[test]
fn results_beyond_the_limits() {
    let huge = "f32[1048576,1048576,1048576]";
    check(
        Op::Broadcast([4, 1 << 20, 1 << 20, 1 << 20].into()),
        &[huge],
        "broadcast in layer \"net/1\": the shape [4,1048576,1048576,1048576] has more than the limit of \
         2305843009213693951 elements",
    );
    check(
        Op::Concat(0),
        &[huge, huge],
        "concat in layer \"net/1\": the shape [2097152,1048576,1048576] has more than the limit of \
         2305843009213693951 elements",
    );
}

#[test]
fn a_value_from_nowhere() {
    let mut graph = Graph::new();
    let error = graph.push(Op::Select, &[memfit_ir::ValueId(3)], "net/1").unwrap_err();
    assert_eq!(error.to_string(), "select in layer \"net/1\": reads value %3, which does not exist yet");
}

#[test]
fn no_layer_is_no_part_of_the_message() {
    let mut graph = Graph::new();
    let x = Op::Input(Input { name: "x".into(), dtype: DType::F32, shape: TensorType::f32([2]).shape });
    let id = graph.push(x, &[], "").unwrap();
    let x = graph.node(id).outputs[0];
    let error = graph.push(Op::Reshape([3].into()), &[x], "").unwrap_err();
    assert_eq!(error.to_string(), "reshape: f32[2] has 2 elements, but [3] has 3");
}
